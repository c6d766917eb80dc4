"""The recipes on text: what they learn, what they keep, and that a stopped run ends the same."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from told_share import told_share

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.token_store import write_store
from interp_toolkit.data.text.tokenization import BYTES, learn_tokenizer, read_tokenizer
from interp_toolkit.errors import InputError
from interp_toolkit.models.loading.formats.checkpoint import save
from interp_toolkit.models.loading.loader import load
from interp_toolkit.registry import Session, find
from interp_toolkit.toys.random_attention import texts as generated
from interp_toolkit.toys.random_attention.variants import VARIANTS
from interp_toolkit.training.engine.acceleration import mean_in_parts
from interp_toolkit.training.engine.metrics import final_score_of
from interp_toolkit.training.tasks.problem import answer_logits
from interp_toolkit.training.text.language import (
    LanguageProblem,
    LanguageTraining,
    cut,
    train_language,
)
from interp_toolkit.training.text.reviews import LABELS, ReviewProblem, Reviews, YelpTraining
from interp_toolkit.training.text.reviews import train as train_yelp
from interp_toolkit.training.text.store import cache_folder, text_store

SIZES = {"d_model": 16, "heads": 2, "layers": 1, "rows": 4, "steps": 6, "length": 24}
FEW = {"documents": 60, "test_documents": 10, "vocabulary": 700}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def language(cache: str, **given) -> LanguageTraining:
    return LanguageTraining(**{**SIZES, **FEW, "cache": cache, **given})


def test_tokens_are_made_once_and_are_the_generated_words(cache: str) -> None:
    config, said = language(cache), list[str]()
    store = text_store(config, Session(say=said.append))
    again = text_store(config.model_copy(update={"seed": 5}), Session(say=said.append))
    assert len(said) == 1
    assert torch.equal(store.train.tokens, again.train.tokens)
    passages = list(generated.passages(10, 2))
    ids = store.test.tokens.tolist()
    assert len(ids) == sum(len(p.split()) + 1 for p in passages)  # one token a word, and the ends
    assert store.tokenizer.decode(ids) == "<|endoftext|>".join(passages) + ("<|endoftext|>")
    other = text_store(config.model_copy(update={"documents": 50}), Session(say=said.append))
    assert (len(said), len(other.train.ends)) == (2, 50)


def test_no_test_document_is_trained_on(cache: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    texts = [f"text number {number % 30}" for number in range(60)]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config = language(cache, text=str(file), documents=0)
    store = text_store(config)
    decoded = [
        set(store.tokenizer.decode(part.tokens.tolist()).split("<|endoftext|>")) - {""}
        for part in (store.train, store.test)
    ]
    assert decoded[1] == set(texts[:10])
    assert decoded[0] == set(texts[10:30])
    assert (len(store.train.ends), store.repeated) == (40, 10)


def test_windows_are_pieces_of_the_stream_at_all_places(cache: str) -> None:
    config = language(cache, rows=4_000)
    store = text_store(config)
    problem = LanguageProblem(config, 0, store, "toy-text")
    stream = store.train.tokens.numpy()
    windows = np.lib.stride_tricks.sliding_window_view(stream, 24)
    there = {row.tobytes() for row in windows}
    drawn = problem.draw(torch.Generator().manual_seed(1)).numpy().astype(np.int16)
    assert {row.tobytes() for row in drawn} <= there
    assert len({row.tobytes() for row in drawn}) > 0.5 * min(len(there), 4_000)
    rows = cut(store.test.tokens, 24)
    assert rows.flatten().tolist() == store.test.tokens[: rows.numel()].tolist()
    assert len(store.test.tokens) - rows.numel() < 24


def test_the_log_perplexity_is_the_mean_surprise(cache: str) -> None:
    config = language(cache)
    problem = LanguageProblem(config, 0, text_store(config), "toy-text")
    rows = problem.test_rows[:70].long()
    with torch.no_grad():
        chances = problem.model(rows)[:, :-1].softmax(-1)
    nats = -chances.gather(2, rows[:, 1:, None]).log()
    assert problem.log_perplexity(rows) == pytest.approx(nats.mean().item(), rel=1e-5)


@given(st.integers(0, 9), st.integers(1, 7), st.integers(0, 100))
@settings(max_examples=25)
def test_a_mean_in_parts_has_the_gradient_of_the_whole(
    rows_at_once: int, n_rows: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n_rows, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def mean(part: torch.Tensor) -> torch.Tensor:
        return (part @ weight).square().sum(1).mean()

    (whole,) = torch.autograd.grad(mean(x), weight)
    loss = mean_in_parts(mean, [x], rows_at_once)
    (parts,) = torch.autograd.grad(loss, weight)
    assert loss.item() == pytest.approx(mean(x).item(), rel=1e-6)
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_in_parts_leave_a_variants_gradients_as_they_are(cache: str, variant: str) -> None:
    gradients = []
    for rows_at_once in (0, 3):
        config = language(cache, variant=variant, rows_at_once=rows_at_once, dtype="float64")
        problem = LanguageProblem(config, 0, text_store(config), "toy-text")
        batch = problem.draw(torch.Generator().manual_seed(1))
        torch.autograd.backward(problem.loss(batch))
        gradients.append({n: p.grad for n, p in problem.model.named_parameters()})
    for name, whole in gradients[0].items():
        assert (whole is None) == (gradients[1][name] is None), name
        if whole is not None:
            torch.testing.assert_close(gradients[1][name], whole, rtol=1e-5, atol=1e-9)


def test_a_run_measures_keeps_its_tokenizer_and_can_be_loaded(
    cache: str, tmp_path: Path, texts
) -> None:
    config = language(cache, seeds=2)
    folder = tmp_path / "run"
    run = train_language("toy-text", config, Session(folder))
    measured = final_score_of(run.training)
    assert (measured.name, measured.better, measured.unit) == ("log_perplexity", "lower", "nats")
    assert measured.value == min(row["log_perplexity"] for row in run.training["seeds"])
    store = text_store(config)
    assert measured.guess == store.unigram
    assert measured.examples == len(store.test.tokens) // 24
    assert len(run.training["curve"]["log_perplexity"]) == len(run.training["curve"]["step"])
    texts(run.verdict)
    assert measured.guess_rule == "token frequencies alone"
    facts = run.training["text"]
    assert 0.5 < facts["least"] < measured.guess
    assert 0 < facts["told_by_context"] < told_share()
    kept = read_tokenizer(folder / "tokenizer.json")
    assert kept.sha256() == run.task["tokenizer_sha256"]
    save(run.model, tmp_path / "m.pt", task=run.task, training=run.training)
    rows = cut(store.test.tokens, 24)[:2].long()
    assert torch.equal(load(tmp_path / "m.pt")(rows), run.model(rows))


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("recipe", ["toy-text", "yelp"])
def test_a_stopped_run_that_is_gone_on_with_ends_bit_for_bit_the_same(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    found = find("recipes", recipe)
    problem = LanguageProblem if recipe == "toy-text" else ReviewProblem
    config = found.config(**SIZES, **FEW, cache=cache, save_every=2, variant="mixit")
    whole = found.train(config, Session())
    real, left = problem.loss, iter(range(5))

    def loss(self, batch):
        if next(left, None) is None:
            raise StoppedError
        return real(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(problem, "loss", loss)
        with pytest.raises(StoppedError):
            found.train(config, Session(tmp_path / "run"))
    resumed = found.train(config, Session(tmp_path / "run", resume=True))
    first, second = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (whole.rows, whole.training) == (resumed.rows, resumed.training)


def test_review_rows_are_the_text_its_end_and_padding(tmp_path: Path) -> None:
    tokenizer = learn_tokenizer(["abc"], BYTES + 3, LABELS)
    texts = [Document("a", 1), Document("abcdefgh", 0), Document("abcd", 1)]
    store = write_store(tmp_path / "s", tokenizer, texts, [Document("z", 0)], LABELS)
    rows = Reviews(store, store.train, 5, "cpu").rows(torch.tensor([0, 1, 2]))
    ids = [tokenizer.encode([text])[0].tolist() for text in ("a", "abcd")]
    end = tokenizer.end
    assert rows.tokens.tolist() == [[*ids[0], end, end, end, end], [*ids[1], end], [*ids[1], end]]
    assert rows.read.tolist() == [[1], [4], [4]]
    assert [tokenizer.decode(row) for row in rows.answer.tolist()] == [
        LABELS[1],
        LABELS[0],
        LABELS[1],
    ]


def test_a_batch_of_reviews_is_no_longer_than_its_longest_and_padding_changes_nothing(
    cache: str,
) -> None:
    for variant in ("standard", "mixit", "frozen-qk"):
        config = YelpTraining(**{**SIZES, "length": 200}, **FEW, cache=cache, variant=variant)
        problem = ReviewProblem(config, 0, text_store(config), "yelp")
        rows = problem.draw(torch.Generator().manual_seed(0))
        longest = int(rows.read.max()) + 1
        assert rows.tokens.shape == (4, longest)
        assert longest < 200
        padding = torch.full((4, 200 - longest), problem.reviews.end)
        padded = rows._replace(tokens=torch.cat([rows.tokens, padding], 1))
        with torch.no_grad():
            ours, theirs = (answer_logits(problem.model, each) for each in (rows, padded))
        torch.testing.assert_close(ours, theirs)


def test_reviews_are_measured_by_their_labels(cache: str, texts) -> None:
    config = YelpTraining(**SIZES, **FEW, cache=cache)
    store = text_store(config)
    run = train_yelp(config)
    measured = final_score_of(run.training)
    tested = Reviews(store, store.test, 24, "cpu").rows(torch.arange(10))
    with torch.no_grad():
        logits = run.model(tested.tokens)[torch.arange(10), tested.read[:, 0]]
    right = (logits.argmax(-1) == tested.answer[:, 0]).double().mean().item()
    assert measured.value == pytest.approx(right)
    good = store.test.labels.double().mean().item()
    assert measured.guess == max(good, 1 - good)
    assert (measured.examples, measured.name) == (10, "accuracy")
    texts(measured.guess_rule)
    assert f"{100 * measured.value:.2f} % of 10 held-out reviews" in run.verdict
    problem = ReviewProblem(config, 0, store, "yelp")
    batch = problem.draw(torch.Generator().manual_seed(0))
    logits = problem.model(batch.tokens)[torch.arange(4), batch.read[:, 0]]
    expected = F.cross_entropy(logits, batch.answer[:, 0])
    assert problem.loss(batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_what_cannot_be_trained_on_is_one_clear_line(cache: str, tmp_path: Path, texts) -> None:
    with pytest.raises(ValueError, match="test_documents"):
        language(cache, documents=0)
    with pytest.raises(InputError, check=texts):
        train_language("toy-text", language(cache, length=4_000))
    for labels, said in ((None, "no column label"), ([0, 2, 1], "labels must be 0 or 1, but")):
        file = tmp_path / f"{said[:2]}.jsonl"
        rows = [{"text": f"t{n}", **({"label": labels[n]} if labels else {})} for n in range(3)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(InputError, match=said):
            train_yelp(YelpTraining(**SIZES, text=str(file), test_documents=1, cache=cache))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--set cache=FOLDER", check=texts):
        text_store(language(str(tmp_path / "file" / "cache")))


@pytest.mark.parametrize(
    ("train", "settings_of"),
    [(partial(train_language, "wikitext"), LanguageTraining), (train_yelp, YelpTraining)],
)
@pytest.mark.parametrize(
    ("held_out", "documents"),
    [
        (None, ["", " ", "\t"]),
        ([" "], ["one"]),
        (None, ["one", " "]),
        (["one"], ["one"]),
    ],
)
def test_a_text_without_enough_documents_is_one_clear_line(
    cache: str,
    tmp_path: Path,
    train,
    settings_of,
    held_out: list[str] | None,
    documents: list[str],
    texts,
) -> None:
    for name, part in (("a", documents), ("test", held_out)):
        if part is not None:
            rows = [json.dumps({"text": text, "label": 1}) for text in part]
            (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    given = {**SIZES, "text": str(tmp_path), "test_documents": 2, "cache": cache}
    with pytest.raises(InputError) as refused:
        train(settings_of(**given))
    texts(str(refused.value))
    assert "\n" not in str(refused.value)


def test_the_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(language("")) == tmp_path / "interp-toolkit" / "text"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(language("")) == tmp_path / ".cache" / "interp-toolkit" / "text"


@pytest.mark.parametrize("name", ["toy-text", "wikitext", "fineweb-edu", "yelp"])
def test_every_preset_is_a_configuration_in_every_variant(name: str) -> None:
    recipe = find("recipes", name)
    assert recipe.name == name
    for preset in recipe.presets.values():
        for variant in recipe.variants.values():
            config = recipe.config(**preset, **variant)
            assert config.text == "generated" or config.text.count("/") == 1


@pytest.mark.slow
def test_a_few_steps_learn_more_than_frequencies(cache: str) -> None:
    config = language(cache, steps=40, rows=16, length=32, d_model=32, lr=0.01, warm_up=0)
    run = train_language("toy-text", config)
    measured = final_score_of(run.training)
    assert measured.guess is not None
    assert run.training["text"]["least"] < measured.value < measured.guess - 0.5
    assert math.exp(measured.value) == pytest.approx(run.training["perplexity"])
