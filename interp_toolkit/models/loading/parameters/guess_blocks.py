"""Guessed names for the tensors inside the layers: attention, MLP and norms.

Words of the module and of the tensor decide; without them the shapes (square matrices are
attention's) and the order. The orientation of a matrix follows from its shape, that of a square one
from the other matrices.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from interp_toolkit.models.loading.parameters.key_rules import BLANK
from interp_toolkit.models.loading.parameters.patterns import KEY, QUERY, VALUE, words
from interp_toolkit.models.loading.parameters.units import BLOCK, BY_ORDER, Checkpoint, Entry, Unit

_FUSED = words(r"w?qkv|c_attn|in_proj|query_key_value|attn_in|attn_qkv|kqv")
_FUSED_KV = words(r"w?kv|key_value|kv_proj")
_ATTENTION = words(r"self|attn|attention|sa|mha|msa|\w*attention|\w*attn|heads?|w?qkv")
_MLP = words(r"mlps?|ff|ffn|ffwd|feed|feedforward|feed_forward|fc\d?|dense_\w+h|net|ffw|hidden")
_GATE = words(r"gate|w_?gate|gating")
_GATE_UP = words(r"gate_up\w*|w12|up_gate|wi_fused|glu|geglu|swiglu")
_IN = words(r"up|c_fc|fc1|fc_in|lin1|linear1|linear_1|w_?in|wi|in|intermediate|dense_h_to_4h|fc")
_OUT = words(r"down|c_proj|fc2|fc_out|lin2|linear2|linear_2|w_?out|wo|dense_4h_to_h|out|proj")
_SECOND = words(r"post_attention|post_attn|pre_?mlp|mlp|ff|ffn|ffwd|2|1_2|final|feed_forward")
_FIRST = words(r"input|attn|attention|self|sa|pre_?attn|1")


class LayerNames(Checkpoint):
    """The layers of a checkpoint; `read_blocks` adds their rules and settings."""

    def read_blocks(self) -> None:
        """Add the rules of all tensors inside the layers."""
        units = [unit for unit in self.units if unit.in_block]
        matrices = [u for u in units if len(u.shape) >= 2]
        attention, mlp = self._split(matrices)
        of_mlp = [u for u in mlp if len(u.shape) == 2 and self.d_model in u.shape]
        mlp_roles = self._mlp_roles(of_mlp)
        self._vote(attention, mlp_roles)
        self._attention(attention)
        self._mlp(mlp_roles)
        norms = [u for u in units if u.is_vector and u.shape == (self.d_model,)]
        self._norms(norms, attention, mlp)
        self._heads(attention)

    def _split(self, matrices: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
        attention, mlp, unclear = [], [], []
        for unit in matrices:
            parts = unit.matches(QUERY) or unit.matches(KEY) or unit.matches(VALUE)
            fused = unit.matches(_FUSED) or unit.matches(_FUSED_KV)
            if fused or parts or (unit.matches(_ATTENTION) and not unit.matches(_MLP)):
                attention.append(unit)
            elif unit.matches(_MLP) or unit.matches(_GATE) or unit.matches(_GATE_UP):
                mlp.append(unit)
            else:
                unclear.append(unit)
        parents = {u.parent for u in attention if u.parent}
        for unit in unclear:
            siblings = unit.parent in parents
            square = len(unit.shape) != 2 or unit.shape[0] == unit.shape[1]
            three = len(unit.shape) == 2 and 3 * self.d_model in unit.shape
            lone_output = attention and not any(
                u.matches(_OUT) and not u.matches(QUERY) for u in attention
            )
            by_word = unit.matches(words("w?o|o_proj|to_out")) and lone_output
            if siblings or square or by_word or (three and not attention):
                attention.append(unit)
            else:
                mlp.append(unit)
        order = {id(unit): index for index, unit in enumerate(self.units)}
        return sorted(attention, key=lambda u: order[id(u)]), sorted(
            mlp, key=lambda u: order[id(u)]
        )

    def _attention(self, units: Sequence[Unit]) -> None:
        roles: dict[str, Unit] = {}
        guesses: dict[str, str] = {}
        left = []
        for unit in units:
            role = self._attention_role(unit)
            if role and role not in roles:
                roles[role] = unit
            else:
                left.append(unit)
        slots = ["O"] if {"QKV"} & roles.keys() else [s for s in "QKVO" if s not in roles]
        slots = [s for s in slots if not (s in "KV" and "KV" in roles)]
        if slots == ["Q", "K", "V", "O"] and left and self._is_fused(left[0]):
            roles["QKV"], left, slots = left[0], left[1:], ["O"]
            guesses["QKV"] = "three times d_model wide"
        for slot, unit in zip(slots, left, strict=False):
            roles[slot] = unit
            if not (slot == "O" and (unit.matches(_OUT) or len(slots) == 1)):
                guesses[slot] = BY_ORDER
        for role, unit in roles.items():
            self._projection(role, unit, guesses.get(role, ""))

    def _attention_role(self, unit: Unit) -> str:
        if unit.matches(_FUSED):
            return "QKV"
        leaf = Unit(unit.leaf, True)
        for one in (leaf, unit):  # the last part of the name first: `query.out` is rare
            if one.matches(_FUSED_KV):
                return "KV"
            for role, pattern in (("Q", QUERY), ("K", KEY), ("V", VALUE)):
                if one.matches(pattern):
                    return role
        if unit.matches(words(r"w?o|o_proj|\w*out\w*|proj|c_proj|dense|projection|unifyheads")):
            return "O"
        return ""

    def _is_fused(self, unit: Unit) -> bool:
        return len(unit.shape) == 2 and 3 * self.d_model in unit.shape

    def _projection(self, role: str, unit: Unit, guess: str) -> None:
        parts = {"QKV": "QKV", "KV": "KV"}.get(role, role)
        weight = unit.tensors.get("weight")
        shared = "_" if role in ("K", "V") and self._is_grouped(unit) else ""
        head = "kv_head" if shared else "head"
        if shared and unit.leaf.startswith("to_"):
            guess = guess or "neighboring query heads share keys, unlike in x-transformers"
        heads = self._heads_axis(unit)
        if weight is not None:
            pattern, shape = weight
            to = tuple(f"{BLOCK}attn.{shared}W_{part}" for part in parts)
            axes, doubt = self._projection_axes(role, unit, head)
            if axes is None:
                why = "a fused projection of unequal parts, or no matrix"
                self.entries[pattern] = Entry(pattern, shape, why=why)
                return
            self.entries[pattern] = Entry(pattern, shape, to, axes, guess or doubt)
        if "bias" in unit.tensors:
            pattern, shape = unit.tensors["bias"]
            if role == "O":
                self.entries[pattern] = Entry(pattern, shape, (f"{BLOCK}attn.b_O",))
                return
            to = tuple(f"{BLOCK}attn.{shared}b_{part}" for part in parts)
            if len(parts) > 1:
                left = f"({heads[0]})" if len(shape) == 1 else heads[0]
                axes = f"{left} -> parts head d_head"
            elif "{head}" in pattern:
                axes = None
            else:
                axes = f"({head} d_head) -> {head} d_head" if len(shape) == 1 else None
            doubt = heads[1] if len(parts) > 1 else ""
            self.entries[pattern] = Entry(pattern, shape, to, axes, guess or doubt)

    def _heads_axis(self, unit: Unit) -> tuple[str, str]:
        """The order of heads and parts in a fused projection, and why it is a guess."""
        if re.search("query_key_value", unit.stem):
            return "head parts d_head", "queries, keys and values of one head next to each other"
        if re.search("c_attn|in_proj|to_kv|to_qkv", unit.stem):
            return "parts head d_head", ""
        return "parts head d_head", "all queries first, then keys, then values"

    def _is_grouped(self, unit: Unit) -> bool:
        queries = [u for u in self.units if u.in_block and self._attention_role(u) == "Q"]
        if not queries or len(unit.shape) != 2 or len(queries[0].shape) != 2:
            return False
        return math.prod(unit.shape) != math.prod(queries[0].shape)

    def _projection_axes(self, role: str, unit: Unit, head: str) -> tuple[str | None, str]:
        """The einops pattern of a projection's weight, and a doubt about it."""
        shape, d = unit.shape, self.d_model
        pattern = unit.tensors["weight"][0]
        if len(shape) == 3 and role in "QKVO":
            inner = "d_head d_model" if role == "O" else "d_model d_head"
            turned = (shape[2] != d) if role == "O" else (shape[1] != d)
            if d not in shape[1:]:
                return None, ""
            a, b = inner.split()
            stored = f"{b} {a}" if turned else inner
            doubt = "square heads" if shape[1] == shape[2] else ""
            return (f"head {stored} -> head {inner}" if turned else None) or (
                f"head {inner} -> head {inner}"
            ), doubt
        if len(shape) != 2 or d not in shape:
            return None, ""
        square = shape[0] == shape[1]
        turned = bool(self.turned) if square else (shape[1] == d) == (role == "O")
        doubt = ""
        if square and self.turned is None:
            doubt = "stored output-first, as nn.Linear does"
        if "{head}" in pattern:
            if role == "O":
                return (
                    "d_head d_model -> d_head d_model"
                    if turned
                    else "d_model d_head -> d_head d_model"
                ), doubt
            return (
                "d_model d_head -> d_model d_head" if turned else "d_head d_model -> d_model d_head"
            ), doubt
        if role == "O":
            flat, to = "(head d_head)", "head d_head d_model"
            return (f"{flat} d_model -> {to}" if turned else f"d_model {flat} -> {to}"), doubt
        if role in ("QKV", "KV"):
            inner, reason = self._heads_axis(unit)
            if (shape[0] if not turned else shape[1]) % len(role):
                return None, ""
            to = "parts head d_model d_head"
            stored = f"d_model ({inner})" if turned else f"({inner}) d_model"
            return f"{stored} -> {to}", reason or doubt
        to = f"{head} d_model d_head"
        flat = f"({head} d_head)"
        return (f"d_model {flat} -> {to}" if turned else f"{flat} d_model -> {to}"), doubt

    def _heads(self, attention: Sequence[Unit]) -> None:
        """The number of heads, if shapes or rotary frequencies show it."""
        shown = any(len(u.shape) == 3 for u in attention) or "{head}" in self.text
        if self.n_heads is not None or shown or not attention:
            return
        rotary = self.settings.get("rotary_dim")
        queries = [u for u in attention if self._attention_role(u) == "Q"]
        width = max(queries[0].shape) if queries else self.d_model
        if rotary is not None and isinstance(rotary[0], int) and width % rotary[0] == 0:
            reason = "rotary frequencies for whole heads"
            self.settings["n_heads"] = (width // rotary[0], reason)
        else:
            self.settings["n_heads"] = (BLANK, "")

    def _mlp(self, roles: Mapping[str, tuple[Unit, str]]) -> None:
        if not roles:
            return
        d = self.d_model
        for role, (unit, guess) in roles.items():
            rows, columns = unit.shape
            square = rows == columns
            turned = bool(self.turned) if square else (columns == d) == (role == "out")
            if square and self.turned is None:
                guess = guess or "stored output-first, as nn.Linear does"
            pattern, shape = unit.tensors.get("weight", ("", ()))
            bias, size = unit.tensors.get("bias", ("", ()))
            if role in ("gate in", "in gate"):
                to = role.split()
                stored = "d_model (parts d_mlp)" if turned else "(parts d_mlp) d_model"
                axes: str | None = f"{stored} -> parts d_model d_mlp"
                bias_axes: str | None = "(parts d_mlp) -> parts d_mlp"
            else:
                to = [role]
                inner = ("d_mlp", "d_model") if role == "out" else ("d_model", "d_mlp")
                stored = " ".join(inner if turned else inner[::-1])
                axes, bias_axes = f"{stored} -> {' '.join(inner)}", None
            if pattern:
                names = tuple(f"{BLOCK}mlp.W_{part}" for part in to)
                self.entries[pattern] = Entry(pattern, shape, names, axes, guess)
            if bias:
                names = tuple(f"{BLOCK}mlp.b_{part}" for part in to)
                self.entries[bias] = Entry(bias, size, names, bias_axes, guess)
        self._activation(roles)

    def _mlp_roles(self, units: Sequence[Unit]) -> dict[str, tuple[Unit, str]]:
        """in, out, gate (or both as one, in their order): the unit, and why it is a guess."""
        leaves = {unit.leaf: unit for unit in units}
        llama = [leaves.get(name) for name in ("w1", "w2", "w3")]
        if len(units) == 3 and all(llama):
            gate, out, up = llama
            assert gate is not None
            assert out is not None
            assert up is not None
            reason = "w1 the gate and w3 the other factor, as in Llama"
            return {"gate": (gate, reason), "out": (out, ""), "in": (up, reason)}
        roles: dict[str, tuple[Unit, str]] = {}
        unclear = []
        numbered = re.compile(r"\d+(\.[a-z]+|\.\d+)?$")  # in a Sequential: in the order of use
        in_order = len(units) == 2 and all(numbered.search(unit.stem) for unit in units)
        for unit in units:
            leaf = Unit(unit.leaf, True)
            role = (
                ""
                if in_order
                else "gate in"
                if leaf.matches(words("gate_up\\w*|w12"))
                else "gate"
                if leaf.matches(_GATE)
                else "in"
                if leaf.matches(_IN) or leaf.matches(words("w_?1|first"))
                else "out"
                if leaf.matches(_OUT) or leaf.matches(words("w_?2|second"))
                else ""
            )
            if role and role not in roles:
                roles[role] = (unit, "")
            else:
                unclear.append(unit)
        for unit in unclear:
            doubt = "" if numbered.search(unit.stem) else BY_ORDER
            slots = [one for one in ("in", "out") if one not in roles]
            if len(units) == 3 and "gate" not in roles and "in" in roles:
                slots = ["gate", *slots]
                doubt = "the first of two is the linear factor, the second the gate"
            if slots:
                roles[slots[0]] = (unit, doubt)
        return self._with_fused_gate(roles)

    def _with_fused_gate(self, roles: dict[str, tuple[Unit, str]]) -> dict[str, tuple[Unit, str]]:
        """A matrix into the MLP that is twice as wide as the one out of it holds the gate too."""
        if roles.keys() != {"in", "out"} and roles.keys() != {"gate in", "out"}:
            return roles
        name = next(iter(roles.keys() - {"out"}))
        unit, doubt = roles[name]
        if math.prod(unit.shape) != 2 * math.prod(roles["out"][0].shape):
            return roles
        if name == "gate in":
            return {
                name: (unit, doubt or "the gate first, as in gate_up_proj"),
                "out": roles["out"],
            }
        reason = "the linear factor first, then the gate, as in GEGLU"
        return {"in gate": (unit, reason), "out": roles["out"]}

    def _activation(self, roles: Mapping[str, object]) -> None:
        gated = any("gate" in role for role in roles)
        text = self.text
        if re.search("contact_head", text):
            act_fn, why = "gelu", "ESM's"
        elif gated:
            glu = re.search(r"ff\.0\.proj|geglu", text)
            act_fn, why = ("gelu", "GEGLU's") if glu else ("silu", "SwiGLU's")
        elif re.search("ffwd|embed_positions", text):
            act_fn, why = "relu", "usual with these names"
        else:
            act_fn, why = "gelu", "the usual one"
        self.settings["act_fn"] = (act_fn, f"{why}; the tensors do not show it")

    def _vote(self, attention: Sequence[Unit], mlp_roles: Mapping[str, tuple[Unit, str]]) -> None:
        """Decide whether matrices are stored input-first, by those whose shape shows it."""
        votes: Counter[bool] = Counter()
        d = self.d_model
        for unit in attention:
            per_head = "{head}" in unit.tensors.get("weight", ("",))[0]
            flat = len(unit.shape) == 2 and d in unit.shape and not per_head
            if flat and unit.shape[0] != unit.shape[1]:
                votes[(unit.shape[1] == d) == (self._attention_role(unit) == "O")] += 1
        for role, (unit, _) in mlp_roles.items():
            if unit.shape[0] != unit.shape[1]:
                votes[(unit.shape[1] == d) == (role == "out")] += 1
        self.turned = votes.most_common(1)[0][0] if votes else None

    def _norms(self, norms: Sequence[Unit], attention: Sequence[Unit], mlp: Sequence[Unit]) -> None:
        chosen: dict[str, tuple[Unit, str]] = {}
        left = []
        for unit in norms:
            role = self._norm_role(unit, attention, mlp)
            if role and role not in chosen:
                chosen[role] = (unit, "")
            else:
                left.append(unit)
        slots = [s for s in ("ln1.", "ln2.") if s not in chosen and (s == "ln1." or mlp)]
        if len(left) <= len(slots):
            for slot, unit in zip(slots, left, strict=False):
                chosen[slot] = (unit, BY_ORDER)
        for to, (unit, guess) in chosen.items():
            self.add_norm(unit, f"{BLOCK}{to}", guess)
        if chosen:
            self._norm_kind([unit for unit, _ in chosen.values()])

    def _norm_role(self, unit: Unit, attention: Sequence[Unit], mlp: Sequence[Unit]) -> str:
        if len(attention) and len(mlp) and unit.parent:

            def within(others: Sequence[Unit]) -> bool:
                starts = [unit.parent, unit.parent.partition(".")[0]]
                return any(o.stem.startswith(f"{start}.") for o in others for start in starts)

            inside = (within(attention), within(mlp))
            if inside == (True, False):
                return "ln1."
            if inside == (False, True):
                return "ln2."
        if unit.matches(_SECOND) or re.search(r"(norm|ln)_?\.?2$", unit.stem):
            return "ln2."
        if unit.matches(_FIRST) or re.search(r"(norm|ln)_?\.?1$", unit.stem):
            return "ln1."
        if not mlp and unit.matches(words(r"ln|norm|layer_?norm|rms_?norm")):
            return "ln1."
        return ""

    def _norm_kind(self, units: Sequence[Unit]) -> None:
        if any("bias" in unit.tensors for unit in units):
            return  # the shift shows a LayerNorm
        names = "\n".join(pattern for u in units for pattern, _ in u.tensors.values())
        if re.search("rms", names, re.IGNORECASE):
            self.settings["normalization_type"] = ("RMS", "")
            return
        gated = any("mlp.W_gate" in to for entry in self.entries.values() for to in entry.to)
        rms = bool(re.search(r"\.g$|\.scale$", names, re.MULTILINE)) or (
            gated and not re.search(r"gamma$|ln", names, re.MULTILINE)
        )
        self.settings["normalization_type"] = (
            "RMS" if rms else "LN",
            "norms without a shift: RMS norms, or LayerNorms without bias",
        )
        if rms and re.search(r"\.g$", names, re.MULTILINE):
            self.settings["eps"] = (1e-12, "F.normalize, as in x-transformers")
        if re.search(r"attention_norm", names):
            self.settings["rotary_adjacent_pairs"] = (True, "complex pairs, as in Llama's own code")
