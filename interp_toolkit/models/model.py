"""The model interface that the toolkit requires, common to all kinds of TransformerLens models.

`Model` is that interface for type checkers, and `Head` names an attention head. `check_model`
refuses any other object with a one-line message that names its type and how to get a model.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from interp_toolkit.errors import InputError, a_kind


class Head(NamedTuple):
    """An attention head: its layer, and its index in that layer, both counted from 0."""

    layer: int
    head: int


#: a head by name (`L5H1`, `a5.h1`, `5.1`), or its layer and index
HeadLike = str | Iterable[Any]
_HEAD = re.compile(r"^(?:L(\d{1,4})H(\d{1,4})|a(\d{1,4})\.h(\d{1,4})|(\d{1,4})\.(\d{1,4}))$")


def as_head(value: Any) -> Head:
    """A head from `L5H1`, `a5.h1`, `5.1` or (5, 1); raises ValueError for anything else.

    Examples:
        >>> as_head("L5H1"), as_head((0, 3))
        (Head(layer=5, head=1), Head(layer=0, head=3))
    """
    if isinstance(value, str) and (match := _HEAD.match(value.strip())):
        layer, head = (int(part) for part in match.groups() if part is not None)
        return Head(layer, head)
    if hasattr(value, "__getitem__") and not isinstance(value, str | bytes):
        with suppress(TypeError, ValueError, KeyError):
            layer, head = (n for n in value if not isinstance(n, bool))
            if operator.index(layer) >= 0 and operator.index(head) >= 0:
                return Head(operator.index(layer), operator.index(head))
    raise ValueError("write a head as L5H1 or (5, 1)")


if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from torch import Tensor, nn

    class Model(Protocol):
        """A `HookedTransformer`, a `TransformerBridge` or this package's `Transformer`.

        Attributes:
            cfg: its configuration: `n_layers`, `n_heads`, `d_model` and so on.
        """

        cfg: Any

        @property
        def hook_dict(self) -> Mapping[str, Any]:
            """Hook points by name."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Logits [batch pos d_vocab], or a loss, of tokens [batch pos]."""

        def parameters(self) -> Iterator[nn.Parameter]:
            """The parameters."""

        def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
            """The parameters, by name."""

        def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
            """The buffers, by name."""

        def state_dict(self) -> Mapping[str, Any]:
            """The parameters and buffers, as saved in a file."""

        def modules(self) -> Iterable[nn.Module]:
            """The modules, itself among them."""

    class LoadedModel(Model, Protocol):
        """A model returned by `load`: the common interface of `Transformer` and bridges."""

        @property
        def tokenizer(self) -> Any:
            """The tokenizer, or None."""

        def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """Logits, with functions at hook points for this pass only."""

        def run_with_cache(self, *args: Any, **kwargs: Any) -> Any:
            """Logits, and the activations by name."""

        def hooks(self, *args: Any, **kwargs: Any) -> Any:
            """A context in which functions are attached to hook points."""

        def add_hook(self, *args: Any, **kwargs: Any) -> None:
            """Attach a function to hook points, until `reset_hooks`."""

        def reset_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """Remove attached functions."""

        def to(self, *args: Any, **kwargs: Any) -> Any:
            """The model on another device, or in another precision."""

        def eval(self) -> Any:
            """The model in eval mode."""

        def __getattr__(self, name: str) -> Any:
            """Attributes of some kinds of model only, such as `W_E`, unknown to type checkers."""

else:
    Model = LoadedModel = Any  # at run time `check_model` refuses other objects


_PARTS = ("cfg", "hook_dict", "run_with_hooks")
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "Sequential")


def _has(model: Any, part: str) -> bool:
    """Whether the model has this part, without access: a bridge builds `hook_dict` each time."""
    return inspect.getattr_static(model, part, None) is not None or hasattr(model, part)


def check_model(model: Any) -> None:
    """Raise InputError, with advice, for any object without the `Model` interface.

    Examples:
        >>> import interp_toolkit as it
        >>> check_model(it.load("toy:xor-2head"))
    """
    kind = type(model).__name__
    if isinstance(model, type):
        raise InputError(f"{model.__name__} is a class, not a model: give an object made of it")
    missing = [part for part in _PARTS if not _has(model, part)]
    if missing:
        raise InputError(f"{a_kind(model)} is not a TransformerLens model{_way(model, missing)}")
    if isinstance(model.cfg, Mapping):
        raise InputError(
            f"the cfg of this {kind} is a dictionary: give it attributes, for example "
            "model.cfg = types.SimpleNamespace(**model.cfg)"
        )
    config = getattr(getattr(model, "original_model", None), "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"{a_kind(model.original_model)} is an encoder-decoder model: the toolkit "
            "supports single stacks, such as its encoder alone or GPT-2"
        )
    longest, n_ctx = longest_row(model), getattr(model.cfg, "n_ctx", None)
    if longest is not None and isinstance(n_ctx, int) and longest < n_ctx:
        raise InputError(
            f"the model's max_seq_len is {longest}, but its bridge's cfg.n_ctx is {n_ctx}: set "
            f"model.cfg.n_ctx = {longest}"
        )
    d_vocab = getattr(model.cfg, "d_vocab", None)
    if isinstance(d_vocab, int) and d_vocab < 1:
        inner = type(getattr(model, "original_model", model)).__name__
        raise InputError(
            f"a {inner} takes no tokens: the toolkit supports only models with token input"
        )


def longest_row(bridge: Any) -> int | None:
    """The context length in a field that TransformerLens does not read (MPT), or None."""
    config = getattr(getattr(bridge, "original_model", None), "config", None)
    longest = getattr(config, "max_seq_len", None)
    return longest if isinstance(longest, int) and longest > 0 else None


def _way(model: Any, missing: list[str]) -> str:
    """A hint on how to turn this object into a model."""
    if isinstance(model, Mapping):
        return ": torch.save a state dict, and give the file (it.load(PATH))"
    if isinstance(model, tuple | list):
        return ": give the model alone"
    if type(model).__name__ in _WRAPPERS:
        return ": give the model in it (model.module, model[0])"
    if hasattr(model, "merge_and_unload"):
        return ": merge its adapter, model.merge_and_unload().save_pretrained(FOLDER); load(FOLDER)"
    if type(model).__module__.startswith("transformers."):
        return ": save it, model.save_pretrained(FOLDER), and give the folder (it.load(FOLDER))"
    if missing == ["cfg"]:
        return ": it has no cfg; give it one with d_model, d_vocab, n_ctx and n_layers"
    return f" (it needs {', '.join(_PARTS)}), nor a path or a name"


def sizes(model: Any, *names: str) -> tuple[int, ...]:
    """Integers from a model's configuration; raises InputError for a missing one."""
    if not hasattr(model, "cfg"):
        check_model(model)
    values = [getattr(model.cfg, name, None) for name in names]
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise InputError(f"the cfg of this {type(model).__name__} has no {name}, needed here")
    return tuple(int(value) for value in values if value is not None)
