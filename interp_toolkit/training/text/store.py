"""Settings, token ids and records that the recipes on text share.

Token ids are made on first use and read afterwards. They are stored in the cache folder, under a
name made from everything they depend on. Processes that need the same ids at the same time (ranks,
jobs of a sweep) make them once. The records describe a text in checkpoints and verdicts.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from interp_toolkit.data.text.texts import Document, Parts, Texts, find_texts, split
from interp_toolkit.data.text.token_store import (
    FORMAT,
    TokenStore,
    one_at_a_time,
    open_store,
    write_store,
)
from interp_toolkit.data.text.tokenization import (
    BYTES,
    TextTokenizer,
    learn_tokenizer,
    read_tokenizer,
)
from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import replacing
from interp_toolkit.registry import Session
from interp_toolkit.training.engine.acceleration import named_ranks
from interp_toolkit.training.tasks.problem import VariantTraining

GENERATED = "generated"
LEARNED = "train"
TRAIN_SEED, TEST_SEED = 1, 2  # of a generated text, the same for all runs


class TextTraining(VariantTraining, ABC):
    """Settings of a variant on text.

    Attributes:
        specials: tokens that the task adds to the vocabulary.
        generated_name: name of the generated text.
        text: "generated" (a small generated text); a folder or file of text; or a hub's dataset,
            `owner/name:configuration` (see `data.text.texts`).
        documents: largest number of training documents; 0: all.
        test_documents: largest number of test documents; 0: all.
        tokenizer: "train" (byte-level BPE learned from the training text), or a `tokenizer.json`
            or a folder with one.
        vocabulary: largest number of tokens of a learned tokenizer.
        tokenizer_documents: largest number of documents from which a tokenizer is learned.
        length: tokens of a row.
        rows_at_once: rows of a batch that are in memory at once; 0: all. Fewer cost a second
            forward pass, and otherwise change only the order of additions.
        cache: folder of token ids; empty: interp-toolkit/text in the user's cache folder.
    """

    specials: ClassVar[tuple[str, ...]] = ()
    generated_name: ClassVar[str]

    text: str = GENERATED
    documents: int = Field(10_000, ge=0, le=2**40)
    test_documents: int = Field(400, ge=0, le=2**30)
    tokenizer: str = LEARNED
    vocabulary: int = Field(1_024, ge=BYTES + 1, le=2**24)
    tokenizer_documents: int = Field(100_000, ge=1)
    length: int = Field(64, ge=2, le=2**20)
    rows_at_once: int = Field(0, ge=0)
    cache: str = ""

    @model_validator(mode="after")
    def _generated_text_ends(self) -> TextTraining:
        if self.text == GENERATED and not (self.documents and self.test_documents):
            raise ValueError("a generated text has no end: give documents and test_documents")
        return self

    @abstractmethod
    def generate(self, number: int, seed: int) -> Iterator[Document]:
        """Documents of the generated text, reproducible by seed."""

    def generated(self) -> Texts:
        """The generated text with the configured number of documents."""

        def test() -> Iterator[Document]:
            return self.generate(self.test_documents, TEST_SEED)

        version = hashlib.sha256("".join(document.text for document in test()).encode())
        parts = Parts(lambda: self.generate(self.documents, TRAIN_SEED), test)
        return Texts(self.generated_name, version.hexdigest(), lambda: parts)

    def texts(self) -> Texts:
        """The text; raises InputError if there is none of that name."""
        return self.generated() if self.text == GENERATED else find_texts(self.text)


TOKENIZER_FILE = "tokenizer.json"


def text_store(config: TextTraining, session: Session | None = None) -> TokenStore:
    """The text as token ids.

    Raises InputError if the text or the tokenizer cannot be read, or the ids cannot be written.
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
    """Raise InputError if the text cannot be read; from a hub, no document is requested."""
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
    """Folder of the token ids: the setting, or a folder in the user's cache."""
    if config.cache:
        return Path(config.cache).expanduser()
    users = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(users).expanduser() / "interp-toolkit" / "text"


def keep_tokenizer(store: TokenStore, session: Session | None) -> None:
    """Write the tokenizer into the run's folder, if there is one, for the model's tokens."""
    if session is None or session.folder is None or not named_ranks().writes:
        return
    path = session.folder / TOKENIZER_FILE
    try:
        with replacing(path) as partial:
            partial.write_text(store.tokenizer.as_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {reason_of(error)}") from error


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
    """A name made from all settings that the ids depend on."""
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


def text_task(name: str, config: TextTraining, store: TokenStore, **further: Any) -> dict[str, Any]:
    """The task record: what the tokens represent, and further task settings."""
    return {
        "name": name,
        "text": config.text,
        "length": config.length,
        "end": store.tokenizer.end,
        **further,
        "tokenizer_sha256": store.tokenizer.sha256(),
    }


def document_facts(store: TokenStore) -> dict[str, Any]:
    """The numbers of documents and tokens."""
    return {
        "train_documents": len(store.train.ends),
        "test_documents": len(store.test.ends),
        "left_out_as_repeated": store.repeated,
        "vocabulary": store.tokenizer.n_tokens,
    }


def worst_of(
    reached: Sequence[float],
    worst: Callable[[Sequence[float]], float],
    written: Callable[[float], str],
) -> str:
    """A clause about the worst seed; "" for a single seed.

    Args:
        reached: scores of the seeds.
        worst: picks the worst of several.
        written: formats a score.
    """
    if len(reached) < 2:
        return ""
    return f"; the worst of {len(reached)} seeds: {written(worst(reached))}"
