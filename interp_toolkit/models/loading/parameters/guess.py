"""Guessed TransformerLens names for tensors under unknown names, by words, shapes and order.

The numbers in the names that count layers (and heads) become `{layer}` (and `{head}`): they are
those that occur with the same rest for every layer. Outside the layers words such as `tok`, `pos`,
`head` decide, else the order; inside a layer see `guess_blocks`. A guess that words do not support
is marked with its reason. Parts without a counterpart in TransformerLens get "?": leaving a weight
out is the user's decision.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from interp_toolkit.models.loading.parameters.guess_blocks import LayerNames
from interp_toolkit.models.loading.parameters.key_rules import BLANK
from interp_toolkit.models.loading.parameters.patterns import words
from interp_toolkit.models.loading.parameters.units import BY_ORDER, Entry, Unit

BY_SHAPE = "by its shape: a table with another size than the vocabulary"
_POSITION = words(r"pos|positions?|positional|wpe|timesteps?|time|pe|ctx|p?pos_?emb\w*|w_?pos")
_UNEMBED = words(
    r"lm_head|\w*head|unembed\w*|logits|output|out|decoder|classifier|readout|fc_out|embed_out|"
    r"proj|project_out|final|w_?u|predict\w*"
)
_EMBED = words(r"\w*tok\w*|wte|words?|vocab|chars?|\w*embed\w*|emb|embs|w_?e|input|actions?")
_FINAL = words(r"ln_?f|final|last|after|out|post|norm|ln_final|f|layer_norm|ln")
_EMBEDDING_NORM = words(r"embed\w*|emb|input|before|post_emb\w*")


@dataclass(frozen=True)
class GuessedNames:
    """Rules for all tensors of a checkpoint, and the settings that its names suggest.

    Attributes:
        entries: one rule for each name pattern, in the checkpoint's order.
        settings: configuration fields with a reason each; "" if it is not a guess.
        n_layers: number of layers.
    """

    entries: tuple[Entry, ...]
    settings: Mapping[str, tuple[object, str]]
    n_layers: int

    def with_scaled_embedding(self, why: str) -> GuessedNames:
        """The same with an embedding that is multiplied by the square root of d_model."""
        entries = tuple(
            replace(e, scale=math.sqrt(e.shape[-1]), why=why) if e.to == ("embed.W_E",) else e
            for e in self.entries
        )
        return replace(self, entries=entries)


def guess_names(tensors: Mapping[str, Tensor], n_heads: int | None = None) -> GuessedNames:
    """The rules for a checkpoint's tensors.

    Args:
        tensors: the tensors as saved.
        n_heads: number of heads if the file's configuration has it; it shows shared keys.
    """
    return _Guesser(tensors, n_heads).result()


class _Guesser(LayerNames):
    """One pass inside the layers and one outside."""

    def result(self) -> GuessedNames:
        """The rules, after one pass inside the layers and one outside."""
        self.read_blocks()
        self._outside()
        entries = [
            self.entries.get(
                pattern,
                Entry(pattern, self.shape_of(pattern), why="no counterpart by words or shape"),
            )
            for pattern in self.patterns
        ]
        return GuessedNames(tuple(_collapsed(entries)), self.settings, self.n_layers)

    def _outside(self) -> None:
        d = self.d_model
        units = [unit for unit in self.units if not unit.in_block]
        matrices = [u for u in units if len(u.shape) == 2 and d in u.shape]
        vectors = [u for u in units if u.is_vector and u.shape == (d,)]
        order = {pattern: index for index, pattern in enumerate(self.patterns)}
        block_indices = [order[p] for u in self.units if u.in_block for p, _ in u.tensors.values()]
        last_block = max(block_indices, default=-1)

        def after(unit: Unit) -> bool:
            return min(order[p] for p, _ in unit.tensors.values()) > last_block

        heads = [u for u in matrices if u.matches(_UNEMBED) and not u.matches(_POSITION)]
        heads = [u for u in heads if not re.search(r"(?<!un)embed(?!_out)|\btok|\bwte", u.stem)]
        heads = [u for u in heads if _UNEMBED.search(u.leaf)] or heads
        unembed = next((u for u in reversed(heads) if after(u)), None) or next(iter(heads), None)
        positions = [u for u in matrices if u.matches(_POSITION) and u is not unembed]
        position = positions[0] if positions else None
        tokens = [u for u in matrices if u not in (unembed, *positions)]
        named = [u for u in tokens if u.matches(_EMBED)]
        guess = ""
        if unembed is not None and len(named) > 1:
            vocabulary = self._beside(unembed)
            named = [u for u in named if self._beside(u) == vocabulary] or named
        embed = named[0] if named else None
        if embed is None and tokens:
            embed, guess = self._as_the_unembedding(tokens, unembed), BY_ORDER
        rest = [u for u in tokens if u is not embed]
        if rest:
            others = ", ".join(u.stem for u in rest[:2])
        if embed is not None:
            if rest and not guess and any(u.matches(_EMBED) for u in rest):
                guess = (
                    f"one of several inputs (also {others}); an activation after it is not in the "
                    "file"
                )
            self._embedding(embed, "embed.W_E", "d_vocab", guess)
        plain = [u for u in rest if not u.matches(_EMBED) or not named]
        by_shape = [] if embed is None else self._of_positions(plain, embed, unembed)
        by_shape = [u for u in by_shape if not after(u)]
        if position is None and by_shape:
            position = by_shape[0]
            self._embedding(position, "pos_embed.W_pos", "n_ctx", BY_SHAPE)
        elif position is None and plain and not after(plain[0]) and not named:
            position = plain[0]
            self._embedding(position, "pos_embed.W_pos", "n_ctx", BY_ORDER)
        elif position is not None:
            self._embedding(position, "pos_embed.W_pos", "n_ctx", "")
        plain = [u for u in plain if u is not position]
        if unembed is None and plain and after(plain[-1]) and embed is not None:
            if self._beside(plain[-1]) == self._beside(embed):
                unembed, guess = plain[-1], BY_ORDER
                self._unembedding(unembed, guess)
        elif unembed is not None:
            self._unembedding(unembed, "")
        if position is None:
            self._no_positions()
        self._final_norm(vectors, after)
        self._head_layers(unembed, units)
        if unembed is None and not any(u.stem.endswith("lm_head") for u in units):
            self.settings["tied_embeddings"] = (True, "no unembedding: the embedding's transpose")
        elif unembed is None:
            self.settings["tied_embeddings"] = (True, "")

    def _as_the_unembedding(self, tables: Sequence[Unit], unembed: Unit | None) -> Unit:
        """The first table with as many rows as the unembedding, else the first."""
        alike = [u for u in tables if unembed and self._beside(u) == self._beside(unembed)]
        return (alike or tables)[0]

    def _of_positions(
        self, tables: Sequence[Unit], embed: Unit, unembed: Unit | None
    ) -> list[Unit]:
        """Tables that differ from the vocabulary and are no projections: of positions by shape."""
        vocabulary = {self._beside(unit) for unit in (embed, unembed) if unit is not None}
        return [
            u
            for u in tables
            if self._beside(u) not in vocabulary | {self.d_model} and "bias" not in u.tensors
        ]

    def _beside(self, unit: Unit) -> int:
        """The size of a matrix besides d_model."""
        rows, columns = unit.shape
        return rows if columns == self.d_model else columns

    def _embedding(self, unit: Unit, to: str, axis: str, guess: str) -> None:
        pattern, shape = unit.tensors["weight"]
        ones = "1 " * (len(shape) - 2)
        turned = unit.shape[0] == self.d_model and unit.shape[1] != self.d_model
        order = f"d_model {axis}" if turned else f"{axis} d_model"
        axes = None if not (turned or ones) else f"{ones}{order} -> {axis} d_model"
        if axes is not None and len(shape) == 3 and shape[1] == 1 and shape[0] != 1:
            return  # [n_ctx, 1, d_model]: left to the user
        entry = Entry(pattern, shape, (to,), axes, guess)
        stem = unit.stem
        if to == "pos_embed.W_pos":
            if "embed_positions" in stem:  # Fairseq, OPT: rows up to the padding index are unused
                reason = "Fairseq's positions start after the padding index, 1"
                entry = replace(entry, skip=2, guess=reason)
            elif stem == "pos_emb.emb" and "attn_layers.layers" in self.text:
                reason = "x-transformers multiplies positions by d_model ** -0.5"
                entry = replace(entry, scale=self.d_model**-0.5, guess=reason)
        elif "contact_head" in self.text:
            reason = "ESM-2's token dropout scales embeddings of prompts without masks by 0.88"
            entry = replace(entry, scale=0.88, guess=reason)
        self.entries[pattern] = entry
        self._no_bias(unit)

    def _unembedding(self, unit: Unit, guess: str) -> None:
        pattern, shape = unit.tensors["weight"]
        turned = unit.shape[0] == self.d_model and unit.shape[1] != self.d_model
        if unit.shape[0] == unit.shape[1]:
            turned = bool(self.turned)
        axes = None if turned else "d_vocab_out d_model -> d_model d_vocab_out"
        self.entries[pattern] = Entry(pattern, shape, ("unembed.W_U",), axes, guess)
        if "bias" in unit.tensors:
            bias, size = unit.tensors["bias"]
            self.entries[bias] = Entry(bias, size, ("unembed.b_U",))

    def _no_bias(self, unit: Unit) -> None:
        if "bias" in unit.tensors:
            bias, size = unit.tensors["bias"]
            self.entries[bias] = Entry(bias, size, why="the bias of an embedding")

    def _no_positions(self) -> None:
        if "positional_embedding_type" in self.settings:
            return
        llama = re.search(r"attention_norm|input_layernorm|rot|rope", self.text)
        if llama:
            self.settings["positional_embedding_type"] = (
                "rotary",
                "no position embeddings, and names as in Llama",
            )
        else:
            self.settings["positional_embedding_type"] = (BLANK, "")

    def _final_norm(self, vectors: Sequence[Unit], after: object) -> None:
        norms = [u for u in vectors if "weight" in u.tensors or "bias" in u.tensors]
        final = [u for u in norms if not u.stem.startswith("lm_head.")]
        embedding = [
            u for u in final if u.matches(_EMBEDDING_NORM) and not u.matches(words("after|final"))
        ]
        final = [u for u in final if u not in embedding]
        for unit in embedding:
            for pattern, shape in unit.tensors.values():
                self.entries[pattern] = Entry(
                    pattern, shape, why="a norm of the embeddings, which the transformer here lacks"
                )
        if final:
            named = [u for u in final if u.matches(_FINAL)]
            unit = (named or final)[-1]
            self.add_norm(unit, "ln_final.", "" if named else BY_ORDER)
        elif any(".ln1." in to or ".ln2." in to for e in self.entries.values() for to in e.to):
            self.settings["final_norm"] = (
                False,
                "no norm after the last layer; norms after the layers (post-norm) are unsupported",
            )

    def _head_layers(self, unembed: Unit | None, units: Iterable[Unit]) -> None:
        """A head of several layers (BERT's, ESM's): the model is read up to its final norm."""
        inner = [u for u in units if re.match(r"(lm_head|mlm_head|cls)\.", u.stem)]
        inner = [u for u in inner if u is not unembed]
        if not inner or unembed is None:
            return
        reason = "the head has further layers: outputs are the last residual stream, no logits"
        for unit in (*inner, unembed):
            for pattern, shape in unit.tensors.values():
                self.entries[pattern] = Entry(pattern, shape, (), why=reason)
        for unit in units:
            if unit.stem.startswith("contact_head"):
                for pattern, shape in unit.tensors.values():
                    self.entries[pattern] = Entry(pattern, shape, (), why="predicts contacts")
        self.settings["tied_embeddings"] = (False, reason)
        self.settings["attention_dir"] = ("bidirectional", "a masked language model's head")


def _collapsed(entries: Sequence[Entry]) -> list[Entry]:
    """Entries to fill in that have a module in common, as one entry with `*`."""
    modules: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.to == (BLANK,) and "." in entry.pattern and "layer" not in entry.pattern:
            modules[entry.pattern.partition(".")[0]].append(entry)
    names = [entry.pattern for entry in entries]
    merged = {
        module: several
        for module, several in modules.items()
        if len(several) > 1 and len(several) == sum(n.startswith(f"{module}.") for n in names)
    }
    out: list[Entry] = []
    done: set[str] = set()
    for entry in entries:
        module = entry.pattern.partition(".")[0]
        if module not in merged or entry not in merged[module]:
            out.append(entry)
        elif module not in done:
            done.add(module)
            out.append(Entry(f"{module}.*", (), why=f"{len(merged[module])} tensors; {entry.why}"))
    return out
