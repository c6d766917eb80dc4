"""Which lists a model sorts, where nobody says: all, or those without repeats only.

Both kinds are asked: lists of distinct values, and those of the uniform lists that have a repeat.
The distinct ones are the model's kind if it sorts significantly and materially more of them: if the
95 % intervals of the two shares lie apart, by MATERIAL. (Uniform lists as they come would not do:
five of 64 values repeat in one list of seven, so a model that sorts no repeats at all seems to lose
little.) Either way both figures are kept and told.
"""

from __future__ import annotations

from collections.abc import Mapping

from interp_toolkit.circuits.sorting.evaluation import ListAccuracy, list_accuracy
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import ListLayout, standard_sets, two_valued_sets
from interp_toolkit.models.model import Model

#: between the intervals: a model made for repeats can do a few points worse on them (the source's
#: first experiment sorts 98.6 % of uniform lists and 96.8 % of hard ones)
MATERIAL = 0.05


def with_repeats(lists: Lists) -> Lists:
    """Those of the lists in which a value occurs twice or more."""
    ordered = lists.sorted()
    equal = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < lists.n_values)
    return lists.take(equal.any(1))


def distinct_only(apart: ListAccuracy, repeating: ListAccuracy) -> bool:
    """Whether a model sorts distinct lists so much better that they are its kind."""
    return apart.low - repeating.high > MATERIAL


def accuracies(
    model: Model, layout: ListLayout, distinct: bool | None, memory: int | str | None = None
) -> tuple[bool, Mapping[str, ListAccuracy]]:
    """Whether the lists are distinct, and how well a model sorts the test sets.

    Of lists with repeats, every multiset of two values is a set of its own ("two_values"): the
    source's causal model fails there.
    Where that was not known, one figure of the other kind of list is added: "repeats" (uniform
    lists that have some) beside the sets of distinct lists, "distinct" beside the others.

    Args:
        model: any TransformerLens model.
        layout: of its rows.
        distinct: whether lists have distinct values; None: find out.
        memory: bound for a batch, such as "4GiB".

    Raises:
        InputError: the layout and the model do not fit together, or it has no distinct lists.
    """

    def right(lists: Lists) -> ListAccuracy:
        return list_accuracy(model, layout, lists, memory)

    if distinct is not None or layout.longest > layout.n_values:
        told = standard_sets(layout, bool(distinct)) | _two_values(layout, bool(distinct))
        return bool(distinct), {name: right(lists) for name, lists in told.items()}
    sets, free = standard_sets(layout, True), standard_sets(layout, False)
    apart, repeating = right(sets.pop("random")), with_repeats(free["random"])
    other = right(repeating) if len(repeating) else None
    if other is not None and distinct_only(apart, other):
        rest = {name: right(lists) for name, lists in sets.items()}
        return True, {"random": apart, **rest, "repeats": other}
    free |= _two_values(layout, False)
    return False, {**{name: right(lists) for name, lists in free.items()}, "distinct": apart}


def hard_lists(layout: ListLayout, distinct: bool) -> Lists:
    """The test lists to look for the greatest loss among: sets, or multisets of two values.

    Where these are too many to list: the hard lists, or the random ones.
    """
    found = standard_sets(layout, distinct) | _two_values(layout, distinct)
    names = ("sets", "two_values", "hard", "random")
    return next(found[name] for name in names if name in found)


def _two_values(layout: ListLayout, distinct: bool) -> dict[str, Lists]:
    """The multisets of two values, by name, where there are some."""
    lists = None if distinct else two_valued_sets(layout)
    return {} if lists is None else {"two_values": lists}
