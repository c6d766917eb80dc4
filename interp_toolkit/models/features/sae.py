"""Sparse autoencoders: latents of a model's activations, and the latents' directions.

An SAE reads `x`, an activation at the hook point it was trained on, and returns one number per
latent. With `z = normalize(x) - b_dec` (or without `b_dec`) and `pre = z W_enc + b_enc`:

- standard: `relu(pre)`;
- topk: the k largest entries of `pre` through a relu, zeros elsewhere;
- groupmax: `relu(pre)` where `pre` is the largest of its group of consecutive latents, k groups;
- jumprelu: `relu(pre)` where `pre` is above the latent's threshold, zero elsewhere;
- gated: `relu(z (W_enc exp(r_mag)) + b_mag)` where `z W_enc + b_gate` is positive, zero elsewhere.

These formulas are SAELens's, operation by operation (groupmax: sparsify's). Latents of its other
architectures are computed by SAELens. `sae_files` reads files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr

Architecture = Literal["standard", "topk", "groupmax", "jumprelu", "gated"]
Normalisation = Literal["none", "layer_norm", "constant_norm_rescale"]
Side = Literal["decoder", "encoder"]
#: activations encoded at once
BATCH = 1024
_LAYER_NORM_EPS = 1e-5  # added to the standard deviation, as in SAELens


@dataclass(frozen=True, eq=False)
class SparseAutoencoder(ShortRepr):
    """A trained sparse autoencoder; see the module.

    Attributes:
        architecture: selects the formula for the latents; another name if `encoder` computes them.
        W_enc, W_dec, b_dec: common to all architectures; a transcoder's d_out may differ from d_in.
        vectors: further vectors of the architecture, one number per latent, by SAELens's names.
        k: for topk and groupmax, the largest number of latents that are on; None for the others.
        subtract_b_dec: whether the encoder reads `x - b_dec`.
        normalisation: applied to each activation first.
        rescale: for topk, whether latents are multiplied by the norms of their decoder rows.
        ranked_by_size: for topk, whether latents are ranked by that product, but not multiplied.
        hook: the hook point it was trained on, if its file names it.
        head: the head it was trained on, if it reads only one.
        source: the folder and its reader, as a phrase.
        sha256: hash of the file of weights.
        encoder: SAELens's own encoder, if it is used.
    """

    architecture: Architecture | str
    W_enc: Float[Tensor, "d_in latent"]
    W_dec: Float[Tensor, "latent d_out"]
    b_dec: Float[Tensor, " d_out"]
    vectors: Mapping[str, Float[Tensor, " latent"]]
    k: int | None = None
    subtract_b_dec: bool = True
    normalisation: Normalisation = "none"
    rescale: bool = False
    ranked_by_size: bool = False
    hook: str | None = None
    head: int | None = None
    source: str = "weights"
    sha256: str | None = None
    encoder: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """The number of latents."""
        return len(self.W_dec)

    def directions(self, side: Side) -> Float[Tensor, "latent d"]:
        """Directions that latents write (decoder rows) or read (encoder columns)."""
        return self.W_dec if side == "decoder" else self.W_enc.T

    @torch.no_grad()
    def encode(self, x: Float[Tensor, "position d_in"]) -> Float[Tensor, "position latent"]:
        """The latents of these activations, `BATCH` at a time, in the SAE's own precision."""
        encode = self._encode if self.encoder is None else self.encoder
        return torch.cat([encode(part.to(self.W_enc)) for part in torch.split(x, BATCH)])

    @torch.no_grad()
    def on(
        self, activations: Shaped[Tensor, "position ..."], threshold: float = 0.0
    ) -> Shaped[Tensor, "position latent"]:
        """The latents above a threshold, from activations with the hook point's axes.

        Raises InputError if their width is not the SAE's.
        """
        x = self.flat_input(activations)
        return torch.cat([self.encode(part) > threshold for part in torch.split(x, BATCH)])

    def flat_input(
        self, activations: Shaped[Tensor, "position ..."]
    ) -> Float[Tensor, "position d_in"]:
        """The SAE's input from a hook point's activations: heads concatenated, or its one head.

        Raises InputError if their width is not the SAE's.
        """
        x = activations
        if self.head is not None:
            if x.ndim != 3 or not 0 <= self.head < x.shape[1]:
                raise InputError(
                    f"{self.source} reads head {self.head}, which {self.hook} does not have"
                )
            x = x[:, self.head]
        x = x.flatten(1)
        if x.shape[1] != len(self.W_enc):
            raise InputError(
                f"{self.source} reads {len(self.W_enc)} dimensions, but {self.hook} has "
                f"{x.shape[1]} in this model: give an SAE trained on this model"
            )
        return x

    def _encode(self, x: Float[Tensor, "position d_in"]) -> Float[Tensor, "position latent"]:
        z = _normalised(x, self.normalisation)
        z = z - self.b_dec if self.subtract_b_dec else z
        if self.architecture == "gated":
            on = (z @ self.W_enc + self.vectors["b_gate"] > 0).to(z.dtype)
            size = z @ (self.W_enc * self.vectors["r_mag"].exp()) + self.vectors["b_mag"]
            return on * size.relu()
        pre = z @ self.W_enc + self.vectors["b_enc"]
        if self.architecture == "standard":
            return pre.relu()
        if self.architecture == "jumprelu":
            return pre.relu() * (pre > self.vectors["threshold"]).to(pre.dtype)
        assert self.k is not None
        if self.architecture == "groupmax":
            groups = pre.relu().reshape(*pre.shape[:-1], self.k, -1)
            largest = groups.argmax(-1, keepdim=True)
            values = groups.gather(-1, largest)
            return torch.zeros_like(groups).scatter_(-1, largest, values).flatten(-2)
        lengths = self.W_dec.norm(dim=-1)
        pre = pre * lengths if self.rescale else pre
        ranked = pre * lengths if self.ranked_by_size else pre
        latents = torch.topk(ranked, k=self.k, dim=-1, sorted=False).indices
        return torch.zeros_like(pre).scatter_(-1, latents, pre.gather(-1, latents).relu())


def _normalised(
    x: Float[Tensor, "position d_in"], how: Normalisation
) -> Float[Tensor, "position d_in"]:
    if how == "layer_norm":
        x = x - x.mean(dim=-1, keepdim=True)
        return x / (x.std(dim=-1, keepdim=True) + _LAYER_NORM_EPS)
    if how == "constant_norm_rescale":
        scale: Tensor = x.shape[-1] ** 0.5 / x.norm(dim=-1, keepdim=True)
        return x * scale
    return x
