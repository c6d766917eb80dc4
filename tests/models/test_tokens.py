from types import SimpleNamespace

import pytest

from interp_toolkit.models.about.info import token_words


class Tokenizer:
    """Knows three ids, and raises for any other, as some do."""

    def decode(self, ids):
        return "".join(["a", " b", "\n"][i] for i in ids)


@pytest.mark.parametrize(("token", "word"), [(0, "'a'"), (1, "' b'"), (2, r"'\n'"), (7, "7")])
def test_tokens_are_written_as_the_tokenizer_has_them(token: int, word: str) -> None:
    assert token_words(SimpleNamespace(tokenizer=Tokenizer()))(token) == word


@pytest.mark.parametrize("model", [SimpleNamespace(), SimpleNamespace(tokenizer=None)])
def test_without_a_tokenizer_a_token_is_its_id(model) -> None:
    assert token_words(model)(3) == "3"
