"""The token ids that a recipe's settings ask for: made on first use, then read.

They lie in the cache folder, under a name made of everything they depend on. Processes that want
the same ones at the same time (ranks, jobs of a sweep) make them once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from interp_toolkit.data.text.texts import Texts, split
from interp_toolkit.data.text.token_store import (
    FORMAT,
    TokenStore,
    one_at_a_time,
    open_store,
    write_store,
)
from interp_toolkit.data.text.tokenization import TextTokenizer, learn_tokenizer, read_tokenizer
from interp_toolkit.errors import InputError
from interp_toolkit.files import replacing
from interp_toolkit.registry import Session
from interp_toolkit.training.engine.ranks import named_ranks
from interp_toolkit.training.text.settings import GENERATED, LEARNED, TextTraining

TOKENIZER_FILE = "tokenizer.json"


def text_store(config: TextTraining, session: Session | None = None) -> TokenStore:
    """The text as token ids.

    Raises InputError when the text or the tokenizer cannot be read, or the ids not be written.
    """
    texts = config.texts()
    folder = cache_folder(config) / _key(config, texts)
    with one_at_a_time(folder.parent):
        store = open_store(folder, config.specials)
        if store is not None:
            return store
        say = (session or Session()).say
        say(f"reading {texts.name} into {folder}")
        return _made(config, texts, folder, say)


def check_text(config: TextTraining) -> None:
    """Raise InputError where the text cannot be read; of a hub's, no document is asked for."""
    if config.text == GENERATED:
        return
    texts = config.texts()
    if open_store(cache_folder(config) / _key(config, texts), config.specials) is not None:
        return
    if Path(config.text).expanduser().exists():
        split(texts, config.test_documents)
    else:
        texts.parts()


def cache_folder(config: TextTraining) -> Path:
    """Where token ids are kept: the setting, or a folder in the user's cache."""
    if config.cache:
        return Path(config.cache).expanduser()
    users = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(users).expanduser() / "interp-toolkit" / "text"


def keep_tokenizer(store: TokenStore, session: Session | None) -> None:
    """Write the tokenizer into the run's folder, where it has one: it reads the model's tokens."""
    if session is None or session.folder is None or not named_ranks().writes:
        return
    path = session.folder / TOKENIZER_FILE
    try:
        with replacing(path) as partial:
            partial.write_text(store.tokenizer.as_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _made(
    config: TextTraining, texts: Texts, folder: Path, say: Callable[[str], None]
) -> TokenStore:
    test, train = split(texts, config.test_documents, say)
    learned_from = islice(train(), config.documents or None)
    tokenizer = _tokenizer(config, (document.text for document in learned_from))
    documents = islice(train(), config.documents or None)
    return write_store(folder, tokenizer, documents, test, config.specials)


def _tokenizer(config: TextTraining, texts: Iterable[str]) -> TextTokenizer:
    if config.tokenizer != LEARNED:
        return read_tokenizer(config.tokenizer, config.specials)
    some = islice(texts, config.tokenizer_documents)
    return learn_tokenizer(some, config.vocabulary, config.specials)


def _key(config: TextTraining, texts: Texts) -> str:
    """A name made of all that the ids depend on."""
    tokenizer = config.tokenizer
    if tokenizer != LEARNED:
        tokenizer = read_tokenizer(tokenizer, config.specials).as_json()
    sizes = [
        config.documents,
        config.test_documents,
        config.vocabulary,
        config.tokenizer_documents,
    ]
    parts = [FORMAT, texts.name, texts.version, tokenizer, sizes, config.specials]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
