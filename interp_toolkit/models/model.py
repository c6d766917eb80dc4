"""What the toolkit asks of a model: the part that all of TransformerLens' kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

else:
    Model = Any  # at run time what is no model is refused in words, by what reads it
