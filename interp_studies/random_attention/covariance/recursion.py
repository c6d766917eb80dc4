"""How the covariance of tokens evolves through random mixing layers: exact means and variances.

A network of width n is h ← W_V h A with tokens as columns. W_V has entries N(0, 1/n). A = I + W̃
has entries of variance c/(nm), and each column is centered over the tokens that its token sees.
With H heads, each has its own A for its part of the rows. Φ = hᵀh/n of m tokens is a Markov chain.
As n and the depth grow with τ = depth/n, it becomes a diffusion (theorem 2.1 of the paper):

    drift      c δ_αβ tr(K_α Φ)/m
    diffusion  Φ^αγ Φ^βδ + Φ^αδ Φ^βγ + c/(mH) [δ_αγ (ΦK_αΦ)^βδ + δ_αδ (ΦK_αΦ)^βγ
                                               + δ_βγ (ΦK_βΦ)^αδ + δ_βδ (ΦK_βΦ)^αγ]

with K_α = I - 11ᵀ/m on the tokens that α sees, and zero elsewhere. The printed theorem omits that
the drift is only on the diagonal (δ_αβ, as the proof derives it). Both generators map Φ⊗Φ linearly,
so E[Φ] and E[Φ⊗Φ] are computed exactly on m⁴ numbers, without sampling: by a matrix exponential for
the diffusion, and by a matrix power for the network.

Source: "Is random attention sufficient for sequence modeling?", theorem 2.1 and appendix A; causal
mixing and several heads are derived here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import expm

from interp_toolkit.errors import InputError

Matrix = Float[np.ndarray, "*draw m m"]
Products = Float[np.ndarray, "*draw m m m m"]  # [α β γ δ]: of Φ^αβ and Φ^γδ


@dataclass(frozen=True)
class MixingLaw:
    """The distribution of the mixing matrices.

    Attributes:
        causal: whether a token sees only itself and earlier tokens.
        n_heads: H, the number of mixing matrices of a layer.
        scale: c; entries have variance c/(nm).
    """

    causal: bool = False
    n_heads: int = 1
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.n_heads < 1 or not (self.scale > 0 and math.isfinite(self.scale)):
            raise InputError(
                f"mixing of {self.n_heads} heads and scale {self.scale}: both must be positive"
            )

    def centring(self, m: int) -> Float[np.ndarray, "m m m"]:
        """K [query, key, key]: the covariance of a column of W̃, relative to that of the entries."""
        K = np.zeros((m, m, m))
        for query in range(m):
            seen = query + 1 if self.causal else m
            K[query, :seen, :seen] = np.eye(seen) - 1 / seen
        return K


FULL = MixingLaw()


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the entries of Φ.

    Attributes:
        mean: E Φ.
        covariance: covariance of every two entries.
    """

    mean: Float[np.ndarray, "m m"]
    covariance: Float[np.ndarray, "m m m m"]

    @property
    def variance(self) -> Float[np.ndarray, "m m"]:
        """The variance of each entry."""
        variance: np.ndarray = np.einsum("abab->ab", self.covariance)
        return variance

    @property
    def mean_square(self) -> float:
        """E Tr Φ/m: the tokens' mean square."""
        return float(np.trace(self.mean)) / len(self.mean)

    @property
    def mean_square_spread(self) -> float:
        """The standard deviation of Tr Φ/m."""
        variance = float(np.einsum("aabb->", self.covariance))
        return math.sqrt(max(0.0, variance)) / len(self.mean)


def drift(phi: Matrix, law: MixingLaw = FULL) -> Matrix:
    """The diffusion's drift: a diagonal matrix."""
    m = phi.shape[-1]
    rates = law.scale / m * np.einsum("aij,...ij->...a", law.centring(m), phi)
    diagonal: Matrix = rates[..., None] * np.eye(m)
    return diagonal


def diffusion(phi: Matrix, law: MixingLaw = FULL) -> Products:
    """The covariance of the diffusion's noise in every two entries, per unit of τ."""
    return _noise(np.einsum("...ab,...cd->...abcd", phi, phi), law)


def sde_moments(phi0: Float[np.ndarray, "m m"], tau: float, law: MixingLaw = FULL) -> Moments:
    """Means and variances of the diffusion at τ.

    Raises:
        InputError: the initial value is not a covariance, or τ is negative.
    """
    check_start(phi0)
    if not (tau >= 0 and math.isfinite(tau)):
        raise InputError(f"tau is {tau}; it must be 0 or more")
    m = len(phi0)
    first = _matrix(lambda phi: drift(phi, law), m, 2)
    second = _matrix(lambda products: _drift_of_products(products, law), m, 4)
    return _moments(phi0, expm(tau * first), expm(tau * second))


def network_moments(
    phi0: Float[np.ndarray, "m m"], width: int, depth: int, law: MixingLaw = FULL
) -> Moments:
    """Means and variances of a network of this width after `depth` layers.

    Raises:
        InputError: the initial value is not a covariance, or the heads do not divide the width.
    """
    check_start(phi0)
    check_sizes(width, depth, law)
    m = len(phi0)
    first = _matrix(lambda phi: phi + drift(phi, law) / width, m, 2)
    second = _matrix(lambda products: _layer_of_products(products, width, law), m, 4)
    power = np.linalg.matrix_power
    return _moments(phi0, power(first, depth), power(second, depth))


def mean_diagonal(
    phi0: Float[np.ndarray, "m m"], tau: float, width: int | None = None, scale: float = 1.0
) -> Float[np.ndarray, " m"]:
    """The mean diagonal in closed form, if every token sees all tokens.

    Φ_αα(0) + g (e^{c r τ} - 1)/r with r = 1 - 1/m and g = Tr Φ(0)/m minus the mean of all entries.
    In a network of width n, (1 + c r/n)^{nτ} replaces the exponential.
    """
    r = 1 - 1 / len(phi0)
    excess = np.trace(phi0) / len(phi0) - phi0.mean()
    log = scale * r * tau if width is None else width * tau * math.log1p(scale * r / width)
    growth = math.expm1(log) / r if r else tau
    diagonal: Float[np.ndarray, " m"] = np.diag(phi0) + excess * growth
    return diagonal


def check_start(phi0: Float[np.ndarray, "m m"]) -> None:
    """Raise InputError unless this is the covariance of linearly independent tokens."""
    symmetric = np.isfinite(phi0).all() and np.allclose(phi0, phi0.T)
    if not (symmetric and np.linalg.eigvalsh(phi0)[0] > 0):
        raise InputError("the covariance to start from must be symmetric and positive definite")


def check_sizes(width: int, depth: int, law: MixingLaw) -> None:
    """Raise InputError for an impossible network."""
    if width < 1 or depth < 0:
        raise InputError(f"there is no network of width {width} and {depth} layers")
    if width % law.n_heads:
        raise InputError(f"{law.n_heads} heads do not divide a width of {width}")


def _drift_of_products(products: Products, law: MixingLaw) -> Products:
    """The rate of change of E[Φ⊗Φ]."""
    m = products.shape[-1]
    own = np.einsum("aij,...ijcd->...acd", law.centring(m), products)
    own = law.scale / m * np.einsum("...acd,ab->...abcd", own, np.eye(m))
    other = np.einsum("cij,...abij->...abc", law.centring(m), products)
    other = law.scale / m * np.einsum("...abc,cd->...abcd", other, np.eye(m))
    rate: Products = own + other + _noise(products, law)
    return rate


def _noise(products: Products, law: MixingLaw) -> Products:
    """The diffusion's noise in every two entries, from the products of entries."""
    m = products.shape[-1]
    eye = np.eye(m)
    mixed = np.einsum("aij,...bijd->...abd", law.centring(m), products)
    noise = (
        np.einsum("ac,...abd->...abcd", eye, mixed)
        + np.einsum("ad,...abc->...abcd", eye, mixed)
        + np.einsum("bc,...bad->...abcd", eye, mixed)
        + np.einsum("bd,...bac->...abcd", eye, mixed)
    )
    total: Products = _wishart(products) + law.scale / (m * law.n_heads) * noise
    return total


def _wishart(products: Products) -> Products:
    """The covariance of a Wishart matrix with one degree of freedom, from Φ⊗Φ."""
    both: Products = np.moveaxis(products, -2, -3) + np.einsum("...adbc->...abcd", products)
    return both


def _layer_of_products(products: Products, width: int, law: MixingLaw) -> Products:
    """E[Φ⊗Φ] after one layer.

    The values of each head have the covariance S, a Wishart matrix with width/H degrees of freedom
    and mean Φ. Mixing turns S into AᵀSA, and Φ is the mean over heads.
    """
    H = law.n_heads
    values = products + H / width * _wishart(products)
    same, other = _mixed_once(values, width, law), _mixed_apart(products, width, law)
    after: Products = same / H + (1 - 1 / H) * other
    return after


def _mixed_apart(products: Products, width: int, law: MixingLaw) -> Products:
    """E[AᵀXA ⊗ BᵀXB] for independent A and B, from X⊗X."""
    m = products.shape[-1]
    eye, K = np.eye(m), law.scale / (width * m) * law.centring(m)
    left = products + np.einsum("aij,ab,...ijcd->...abcd", K, eye, products)
    both: Products = left + np.einsum("cij,cd,...abij->...abcd", K, eye, left)
    return both


def _mixed_once(products: Products, width: int, law: MixingLaw) -> Products:
    """E[AᵀXA ⊗ AᵀXA], from X⊗X: the pairings of A's four factors, by Isserlis's theorem."""
    m = products.shape[-1]
    eye, K = np.eye(m), law.scale / (width * m) * law.centring(m)
    crossed = (
        np.einsum("aij,ac,...ibjd->...abcd", K, eye, products)
        + np.einsum("aij,ad,...ibcj->...abcd", K, eye, products)
        + np.einsum("bij,bc,...aijd->...abcd", K, eye, products)
        + np.einsum("bij,bd,...aicj->...abcd", K, eye, products)
        + np.einsum("aik,bjl,ac,bd,...ijkl->...abcd", K, K, eye, eye, products)
        + np.einsum("ail,bjk,ad,bc,...ijkl->...abcd", K, K, eye, eye, products)
    )
    total: Products = _mixed_apart(products, width, law) + crossed
    return total


def _matrix(
    operator: Callable[[np.ndarray], np.ndarray], m: int, rank: int
) -> Float[np.ndarray, "size size"]:
    """A linear map of tensors with `rank` axes of length m, as a matrix on flattened tensors."""
    size = m**rank
    basis = np.eye(size).reshape(size, *[m] * rank)
    matrix: Float[np.ndarray, "size size"] = operator(basis).reshape(size, size).T
    return matrix


def _moments(
    phi0: Float[np.ndarray, "m m"],
    first: Float[np.ndarray, "square square"],
    second: Float[np.ndarray, "fourth fourth"],
) -> Moments:
    m = len(phi0)
    mean = (first @ phi0.flatten()).reshape(m, m)
    squares = np.einsum("ab,cd->abcd", phi0, phi0).flatten()
    products = (second @ squares).reshape(m, m, m, m)
    return Moments(mean, products - np.einsum("ab,cd->abcd", mean, mean))
