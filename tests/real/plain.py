"""A Llama-like model run by transformers alone: what the toolkit says of it can be checked here.

Nothing of the toolkit or of TransformerLens is used. What heads write is the input of each
attention's `o_proj`, `d_head` columns a head; a hook in front of it changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadEdit:
    """What a head's output becomes.

    Attributes:
        layer, head: which one.
        value: its new output, in a shape that fits [row, position, d_head].
        positions: where; None is everywhere.
    """

    layer: int
    head: int
    value: Tensor
    positions: Sequence[int] | None = None


class PlainModel:
    """A causal language model of transformers whose layers are `model.layers[i].self_attn.o_proj`.

    Args:
        model: as transformers loads it, with eager attention.
        tokenizer: its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer = model.eval(), tokenizer
        config = model.config
        self.n_layers, self.n_heads = config.num_hidden_layers, config.num_attention_heads
        self.d_head = getattr(config, "head_dim", None) or config.hidden_size // self.n_heads

    @classmethod
    def from_gguf(cls, path: Path) -> PlainModel:
        """The model in a GGUF file, dequantized to float32."""
        return cls._load(path.parent, gguf_file=path.name)

    @classmethod
    def from_folder(cls, folder: Path) -> PlainModel:
        """The model in a Hugging Face folder, in float32."""
        return cls._load(folder)

    @classmethod
    def _load(cls, folder: Path, **given: Any) -> PlainModel:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        given["local_files_only"] = True
        model = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, **given
        )
        return cls(model, AutoTokenizer.from_pretrained(folder, **given))

    def logits(self, tokens: Tensor, edits: Iterable[HeadEdit] = ()) -> Tensor:
        """The logits [row, position, token], with heads' outputs replaced."""
        with torch.no_grad(), self._edited(edits):
            return self.model(tokens).logits

    def heads(self, tokens: Tensor) -> list[Tensor]:
        """What each head hands on, one tensor [row, position, head, d_head] a layer."""
        kept: list[Tensor] = []
        with torch.no_grad(), ExitStack() as stack:
            for layer in range(self.n_layers):
                handle = self._output(layer).register_forward_pre_hook(
                    lambda module, args: kept.append(self._by_head(args[0]).clone())
                )
                stack.callback(handle.remove)
            self.model(tokens)
        return kept

    def patterns(self, tokens: Tensor) -> list[Tensor]:
        """The attention patterns, one tensor [row, head, query, key] a layer."""
        with torch.no_grad():
            return list(self.model(tokens, output_attentions=True).attentions)

    def zero(self, layer: int, head: int, positions: Sequence[int] | None = None) -> HeadEdit:
        """The edit that leaves a head without output."""
        return HeadEdit(layer, head, torch.zeros(self.d_head), positions)

    def mean(
        self, layer: int, head: int, reference: Tensor, positions: Sequence[int] | None = None
    ) -> HeadEdit:
        """The edit that puts each position's mean over the reference's rows in place of it."""
        value = self.heads(reference)[layer][:, :, head].mean(0)
        return HeadEdit(layer, head, value, positions)

    @contextmanager
    def _edited(self, edits: Iterable[HeadEdit]) -> Iterator[None]:
        with ExitStack() as stack:
            for edit in edits:
                handle = self._output(edit.layer).register_forward_pre_hook(self._hook(edit))
                stack.callback(handle.remove)
            yield

    def _hook(self, edit: HeadEdit) -> Any:
        def replace(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            changed = args[0].clone()
            z = self._by_head(changed)  # a view
            n_pos = z.shape[1]
            where = list(range(n_pos)) if edit.positions is None else list(edit.positions)
            full = edit.value[..., :n_pos, :] if edit.value.ndim > 1 else edit.value
            z[:, where, edit.head] = full.expand(len(z), n_pos, self.d_head)[:, where]
            return (changed, *args[1:])

        return replace

    def _output(self, layer: int) -> Any:
        return self.model.model.layers[layer].self_attn.o_proj

    def _by_head(self, joined: Tensor) -> Tensor:
        return joined.view(*joined.shape[:-1], self.n_heads, self.d_head)
