"""Kinds of heads: what each is to attend to, and what it is to write, in measured terms.

| kind | source |
|---|---|
| name-mover, negative-name-mover, s-inhibition | Wang et al. 2023, "Interpretability in the Wild" |
| successor | Gould et al. 2023, "Successor Heads" |
| copy-suppression | McDougall et al. 2023, "Copy Suppression" |
| attention-sink | Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks" |
| delimiter | Clark et al. 2019, "What Does BERT Look At?" |

A side (attention, or writing) passes if each of its needs does: the mean over rows is in the need's
direction by the adjusted p-value, and its interval lies beyond the need's floor. A head is of a
kind if both sides pass; undecided, if they do not and the intervals of both reach the floors.
An S-inhibition head's writing side is what its absence does downstream (see `causal`).
"""

from __future__ import annotations

from dataclasses import dataclass

ATTENDS = 0.1  # of the attention, beyond that to places like them
PARKS = 0.4  # of the attention, on places that are parked at
QUIET = 0.5  # of what attending elsewhere would write
MUCH = 0.1  # of that preference: heads of no kind that write as much are told too
WRITES = 0.02  # of the model's own preference for the answer


@dataclass(frozen=True)
class RoleNeed:
    """One thing that must hold.

    Attributes:
        measure: its name.
        sign: 1, or -1 where it is to be negative.
        floor: least mean in that direction.
        of_difference: whether the floor is a share of the model's preference for the answer.
        optional: whether rows may have nothing to measure it on (then it is left out, and said).
    """

    measure: str
    sign: int = 1
    floor: float = 0.0
    of_difference: bool = False
    optional: bool = False


@dataclass(frozen=True)
class HeadKind:
    """A kind of head.

    Attributes:
        name: as in results.
        singular, plural: for sentences.
        attention, writing: its needs; the first of each is the one whose size is told.
    """

    name: str
    singular: str
    plural: str
    attention: tuple[RoleNeed, ...]
    writing: tuple[RoleNeed, ...]


def _attends(to: str, floor: float) -> tuple[RoleNeed, RoleNeed]:
    at_least = RoleNeed(f"{to}: attention", floor=floor)
    return at_least, RoleNeed(f"{to}: attention, displaced", optional=True)


def _writes(name: str, sign: int, displaced: str) -> tuple[RoleNeed, RoleNeed]:
    size = RoleNeed(name, sign, WRITES, of_difference=True)
    return size, RoleNeed(displaced, sign, optional=True)


NAME_MOVER = HeadKind(
    "name-mover",
    "name mover",
    "name movers",
    _attends("answer", ATTENDS),
    (*_writes("direct", 1, "direct, displaced"), RoleNeed("copies")),
)
NEGATIVE = HeadKind(
    "negative-name-mover",
    "negative name mover",
    "negative name movers",
    _attends("answer", ATTENDS),
    (*_writes("direct", -1, "direct, displaced"), RoleNeed("copies", -1)),
)
S_INHIBITION = HeadKind(
    "s-inhibition", "S-inhibition head", "S-inhibition heads", _attends("repeat", ATTENDS), ()
)
SUCCESSOR = HeadKind(
    "successor",
    "successor head",
    "successor heads",
    _attends("before", ATTENDS),
    (
        RoleNeed("next, of its list", floor=WRITES, of_difference=True),
        RoleNeed("next, over the one before"),
        RoleNeed("direct, displaced", optional=True),
    ),
)
SUPPRESSION = HeadKind(
    "copy-suppression",
    "copy-suppression head",
    "copy-suppression heads",
    _attends("predicted", ATTENDS),
    _writes("predicted: written", -1, "predicted: written, displaced"),
)
SINK = HeadKind(
    "attention-sink",
    "attention sink",
    "attention sinks",
    (RoleNeed("first: attention", floor=PARKS),),
    (RoleNeed("first: quiet", floor=QUIET),),
)
DELIMITER = HeadKind(
    "delimiter",
    "head parked on delimiters",
    "heads parked on delimiters",
    _attends("delimiter", PARKS),
    (RoleNeed("delimiter: quiet", floor=QUIET),),
)
#: in the order of results
KINDS = (NAME_MOVER, NEGATIVE, S_INHIBITION, SUCCESSOR, SUPPRESSION, SINK, DELIMITER)
