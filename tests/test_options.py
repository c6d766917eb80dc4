"""Options classes: read from Python and from the command line, made into flags."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, model_validator

import interp_toolkit as it
from interp_toolkit.errors import InputError
from interp_toolkit.options import MAX_SEED, Flag, Names, Options, Position, Words, flags
from interp_toolkit.options import read_options as read
from interp_toolkit.registry import Analysis, load_all


class Sample(Options):
    """One of each kind."""

    level: float = Field(0.05, gt=0, lt=1, description="Of significance.")
    hooks: Annotated[Names | None, Flag("--hook", metavar="PATTERN")] = Field(
        None, description="Where to look."
    )
    layout: Annotated[Words | None, Flag(metavar='"a b"')] = Field(None, description="Of a row.")
    position: Position | None = Field(None, description="Where.")
    how: Literal["mean", "zero"] = Field("mean", description="What stands in.")
    distinct: Annotated[bool | None, Flag("--distinct/--repeats")] = Field(None, description="?")
    deep: bool = Field(False, description="All layers.")

    @model_validator(mode="after")
    def _zero_is_not_deep(self) -> Sample:
        if self.deep and self.how == "zero":
            raise ValueError("zero does not go with deep")
        return self


class Needing(Options):
    """With an option that has no default."""

    table: str = Field(description="A truth table.")


def test_an_options_class_becomes_flags_its_own_first() -> None:
    found = {flag.field: flag for flag in flags(Sample)}
    own = ["level", "hooks", "layout", "position", "how", "distinct", "deep"]
    assert list(found) == [*own, "effort", "memory", "seed"]
    assert found["level"].name == "--level"
    assert found["level"].help == "Of significance; default: 0.05."
    assert (found["hooks"].name, found["hooks"].metavar) == ("--hook", "PATTERN")
    assert [name for name, flag in found.items() if flag.repeated] == ["hooks"]
    assert found["layout"].metavar == '"a b"'
    assert [name for name, flag in found.items() if flag.boolean] == ["distinct", "deep"]
    assert found["distinct"].name == "--distinct/--repeats"
    assert found["deep"].name == "--deep/--no-deep"
    assert (found["how"].choices, found["how"].metavar) == (("mean", "zero"), "mean|zero")
    assert (found["position"].metavar, found["seed"].metavar) == ("N|all", "N")
    assert not any(flag.required for flag in found.values())
    assert [flag.field for flag in flags(Needing) if flag.required] == ["table"]


def test_texts_are_read_by_the_fields_types() -> None:
    options = read(
        Sample,
        {"level": "0.2", "hooks": "a", "layout": "x list10", "position": "-1", "seed": "7"},
        "sample",
    )
    assert (options.level, options.hooks, options.seed) == (0.2, ("a",), 7)
    assert (options.layout, options.position) == (("x", "list10"), -1)
    assert read(Sample, {"position": "all", "hooks": ["a", "b"]}, "s").hooks == ("a", "b")


@pytest.mark.parametrize(
    "given",
    [
        {"levle": 1},
        {"level": 1.5},
        {"level": float("nan")},
        {"level": "much"},
        {"how": "median"},
        {"position": "first"},
        {"seed": -1},
        {"seed": MAX_SEED + 1},
        {"hooks": object()},
        {"deep": True, "how": "zero"},
    ],
)
def test_what_does_not_fit_is_one_clear_line(given, texts) -> None:
    with pytest.raises(InputError) as refused:
        read(Sample, given, "sample")
    texts(str(refused.value))
    assert "\n" not in str(refused.value)


def test_on_the_command_line_options_go_by_their_flags() -> None:
    with pytest.raises(InputError, match="sample: --hook 3 cannot be used"):
        read(Sample, {"hooks": 3}, "sample", as_flags=True)
    with pytest.raises(InputError, match=r"needs 'table' \(--table\)"):
        read(Needing, {}, "needing")


def test_settings_are_all_but_seed_and_memory_as_resolved() -> None:
    settings = Sample(hooks=("a",), seed=3).settings(hooks=["a.b"])
    assert settings["hooks"] == ["a.b"]
    assert settings["level"] == 0.05
    assert not {"seed", "memory"} & settings.keys()


@given(level=st.floats(0.001, 0.999), seed=st.integers(0, MAX_SEED))
def test_a_text_reads_as_the_number_it_is_of(level: float, seed: int) -> None:
    as_text = read(Sample, {"level": repr(level), "seed": str(seed)}, "sample")
    assert as_text == read(Sample, {"level": level, "seed": seed}, "sample")


def test_every_option_of_every_analysis_is_described() -> None:
    for name, analysis in load_all("probes").items():
        assert issubclass(analysis.options, Options), name
        for flag in flags(analysis.options):
            assert flag.help, (name, flag.field)
            assert flag.help.endswith("."), (name, flag.field)


def test_calling_an_analysis_checks_its_options() -> None:
    seen = []
    analysis = Analysis("s", "A sample.", Sample, lambda *given: seen.append(given))
    analysis("model", data=None, level="0.5")
    ((model, data, options, _),) = seen
    assert (model, data, options.level) == ("model", None, 0.5)
    with pytest.raises(InputError, match="takes no option"):
        analysis("model", other=1)


def test_large_values_stand_in_the_settings_by_their_shape_or_source() -> None:
    class Held(Options):
        """With an option of any kind."""

        features: Any = Field(None, description="Any.")

    assert Held(features=np.zeros((40, 64))).settings() == {"features": "ndarray [40, 64]"}
    named = SimpleNamespace(source="an SAE's latents", directions=np.zeros(9))
    assert Held(features=named).settings() == {"features": "an SAE's latents"}
    assert Held(features=[np.float64(0.5), "a"]).settings() == {"features": [0.5, "a"]}


def test_an_analysis_without_an_options_class_is_refused_when_it_is_made(texts) -> None:
    with pytest.raises(TypeError, match="'old'", check=texts):
        Analysis("old", "As plugins once were.", lambda model: None, lambda model, data: None)


def test_progress_may_be_none() -> None:
    assert it.analyze("toy:or-1head", "or", progress=None).probe == "or"
