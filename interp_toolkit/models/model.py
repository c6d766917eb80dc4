"""What the toolkit asks of a model: the part that all of TransformerLens' kinds share.

Also here:
- A head's place in a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple


class Head(NamedTuple):
    """An attention head: its layer, and its number in that layer, both counted from 0."""

    layer: int
    head: int


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
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
            """What is trained."""

        def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
            """What is trained, by name."""

        def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
            """What is not trained, by name."""

        def state_dict(self) -> Mapping[str, Any]:
            """What a file of weights holds."""

        def modules(self) -> Iterable[nn.Module]:
            """The modules, itself among them."""

    class LoadedModel(Model, Protocol):
        """A model as `load` gives it: what our `Transformer` and a `TransformerBridge` share."""

        @property
        def tokenizer(self) -> Any:
            """What makes tokens of text; None where it has none."""

        def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """Logits, with functions at hook points for this pass alone."""

        def run_with_cache(self, *args: Any, **kwargs: Any) -> Any:
            """Logits, and the activations by name."""

        def hooks(self, *args: Any, **kwargs: Any) -> Any:
            """A context in which functions stay at hook points."""

        def add_hook(self, *args: Any, **kwargs: Any) -> None:
            """Attach a function to hook points, until `reset_hooks`."""

        def reset_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """Take attached functions away."""

        def to(self, *args: Any, **kwargs: Any) -> Any:
            """The model on another device, or in another precision."""

        def eval(self) -> Any:
            """The model in eval mode."""

        def __getattr__(self, name: str) -> Any:
            """What only some of the kinds have, such as `W_E`: not known to type checkers."""

else:
    Model = LoadedModel = Any  # at run time what is no model is refused in words, by its reader
