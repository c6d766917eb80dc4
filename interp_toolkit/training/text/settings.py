"""The settings that the recipes on text share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field, model_validator

from interp_toolkit.data.text.texts import (
    Document,
    Parts,
    Texts,
    find_texts,
)
from interp_toolkit.data.text.tokenization import BYTES
from interp_toolkit.training.tasks.settings import VariantTraining

GENERATED = "generated"
LEARNED = "train"
TRAIN_SEED, TEST_SEED = 1, 2  # of a generated text; all runs read the same one


class TextTraining(VariantTraining, ABC):
    """Settings of a variant on text.

    Attributes:
        specials: tokens that the task adds to the vocabulary.
        generated_name: what the generated text is called.
        text: "generated" (a small text of ours); a folder or file of text; or a hub's dataset,
            `owner/name:configuration` (see `data.text.texts`).
        documents, test_documents: to learn from and to test on, at most; 0: all there are.
        tokenizer: "train" (byte-level BPE learned from the training text), or a `tokenizer.json`
            or a folder with one.
        vocabulary: tokens of a learned tokenizer, at most.
        tokenizer_documents: that a tokenizer is learned from, at most.
        length: tokens of a row.
        rows_at_once: rows of a batch that are in memory at once; 0: all. Fewer cost a second
            forward pass, and change nothing else but the order of additions.
        cache: where token ids are kept; empty: interp-toolkit/text in the user's cache folder.
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
        """So many documents of the generated text, the same ones for the same seed."""

    def generated(self) -> Texts:
        """The generated text of so many documents."""

        def test() -> Iterator[Document]:
            return self.generate(self.test_documents, TEST_SEED)

        version = hashlib.sha256("".join(document.text for document in test()).encode())
        parts = Parts(lambda: self.generate(self.documents, TRAIN_SEED), test)
        return Texts(self.generated_name, version.hexdigest(), lambda: parts)

    def texts(self) -> Texts:
        """The text; raises InputError when there is none of that name."""
        return self.generated() if self.text == GENERATED else find_texts(self.text)
