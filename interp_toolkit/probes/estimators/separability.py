"""Linear separability of two finite point sets: yes, no, or undecided, with a witness.

`check_separability` searches for a witness (see `hulls`) and accepts only those that it verifies in
float64 on the original points:

- **separable**: a hyperplane whose margin is above `tolerance * scale`, where `scale` is the
  largest norm of a point and `tolerance` the precision of the activations' dtype. Rounding can
  separate points that coincide in exact arithmetic; its effect is bounded relative to the size of
  the activations, not to their spread.
- **not separable**: convex weights on the two classes whose combinations coincide to within
  `tolerance * radius / 2`, where `radius` is the largest distance of a point from the center. No
  direction has a larger margin. Since no translate of the points has `scale < radius / 2`, a shift
  can blur a verdict into *undecided*, but never turn one sure answer into the other.
- **undecided** otherwise, with the reason.

Both witnesses are plain data and are checked with two matrix products. A hyperplane shows that one
class scores above the other by a margin. Two convex combinations that coincide show that no
hyperplane separates, since their common point would have to lie on both sides. `verify` recomputes
these claims on the points, independently of the search.

The result also contains the probability that random labels of as many points in as many dimensions
are separable (Cover 1965): with few points, 'separable' says little about the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.probes.estimators import hulls
from interp_toolkit.stats import cover_probability

WEIGHT_SUM_TOLERANCE = 1e-9  # detects wrong weights; the rest is removed by normalization


@dataclass(frozen=True)
class Hyperplane(ShortRepr):
    """A separating hyperplane `direction · x = threshold`, positives above it.

    Attributes:
        direction: unit normal.
        threshold: midway between the classes.
        margin: the gap between the classes along `direction`, in the units of the activations:
            the least score of a positive minus the greatest score of a negative.

    Examples:
        >>> plane = Hyperplane(np.array([1.0, 0.0]), threshold=1.0, margin=2.0)
        >>> plane.verify([[2.0, 5.0]], [[0.0, 5.0]])
        2.0
    """

    direction: Float[np.ndarray, " d"]
    threshold: float
    margin: float

    def verify(self, X_positive: Any, X_negative: Any) -> float:
        """The gap between the classes along the unit direction, on these points, in float64.

        Args:
            X_positive: [n_pos d], an array or a tensor.
            X_negative: [n_neg d].
        """
        above = as_float64("positive", X_positive) @ self.unit
        below = as_float64("negative", X_negative) @ self.unit
        return float(above.min() - below.max())

    @property
    def unit(self) -> Float[np.ndarray, " d"]:
        """The direction, normalized again, so that no verdict depends on a stored norm."""
        return np.asarray(self.direction / np.linalg.norm(self.direction))


@dataclass(frozen=True)
class Certificate(ShortRepr):
    """A common point of the two classes' convex hulls: no hyperplane separates them.

    Attributes:
        positive_weights: convex weights on the positives (at least 0, sum 1).
        negative_weights: convex weights on the negatives.
        residual: distance between the two weighted means, in the units of the activations. Along
            no unit direction is the gap larger.

    Examples:
        >>> halves = np.array([0.5, 0.5])
        >>> Certificate(halves, halves, residual=0.0).verify([[0, 1], [1, 0]], [[0, 0], [1, 1]])
        0.0
    """

    positive_weights: Float[np.ndarray, " n_pos"]
    negative_weights: Float[np.ndarray, " n_neg"]
    residual: float

    def verify(self, X_positive: Any, X_negative: Any) -> float:
        """The distance between the two weighted means of these points, in float64.

        The distance is measured relative to one of the points, because a large common offset from
        the origin would round the difference away. Raises InputError when the weights are not
        convex, since such a certificate proves nothing.

        Args:
            X_positive: [n_pos d], an array or a tensor.
            X_negative: [n_neg d].
        """
        X_positive = as_float64("positive", X_positive)
        X_negative = as_float64("negative", X_negative)
        origin = X_positive[0]
        positive = _convex(self.positive_weights) @ (X_positive - origin)
        negative = _convex(self.negative_weights) @ (X_negative - origin)
        return float(np.linalg.norm(positive - negative))


def as_float64(name: str, X: Any) -> Float[np.ndarray, "..."]:
    """Activations as a float64 array; InputError, naming the class, for other than real numbers."""
    if hasattr(X, "detach"):
        X = X.detach().cpu()
        X = (X if X.is_complex() else X.double()).numpy()
    try:
        return np.asarray(X).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError):
        raise InputError(f"the {name} class does not hold real numbers") from None


def _convex(weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    total = weights.sum()
    if weights.min() < 0 or abs(total - 1) > WEIGHT_SUM_TOLERANCE:
        raise InputError(
            f"not convex weights: smallest {weights.min():.3g}, sum {total:.12g} "
            "(a certificate needs weights of at least 0 that sum to 1)"
        )
    return np.asarray(weights / total)


Status = Literal["separable", "not_separable", "undecided"]

#: Smallest gap, relative to the largest activation, that rounding cannot explain.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
LARGEST_EXPONENT = 1023  # of a power of two in float64
WIDEST_GAP_LIMIT = 500  # points up to which the maximum-margin direction is computed


@dataclass(frozen=True)
class Separability(ShortRepr):
    """The verdict on separability, its witness and its tolerances.

    Attributes:
        status: "separable", "not_separable" or "undecided".
        margin: gap between the classes along `direction`, in the activations' units; negative if
            the classes overlap along the best direction tried. A lower bound on the largest
            possible gap.
        direction: unit vector; zeros if no direction was tried, since one activation has both
            labels and the classes' means coincide.
        threshold: midway between the classes along it.
        certificate: the weights under which the hulls meet, if not separable.
        reason: the reason for the status, as a phrase.
        precision: dtype in which the activations were computed.
        tolerance: smallest gap that counts, in the activations' units.
        scale: largest norm of a point.
        n_points: distinct points.
        affine_dim: dimension of the smallest flat that contains them (up to the precision).
        chance: probability that random labels of as many points in general position are separable.
        contradictions: number of activations that occur under both labels.

    Examples:
        >>> from interp_toolkit.probes import check_separability
        >>> verdict = check_separability([[0.0], [1.0]], [[0.5]])
        >>> verdict.status, verdict.certificate.positive_weights.round(6).tolist()
        ('not_separable', [0.5, 0.5])
    """

    status: Status
    margin: float
    direction: Float[np.ndarray, " d"]
    threshold: float
    certificate: Certificate | None
    reason: str
    precision: str
    tolerance: float
    scale: float
    n_points: int
    affine_dim: int
    chance: float
    contradictions: int

    @property
    def relative_margin(self) -> float:
        """The margin relative to the largest norm of a point."""
        return self.margin / self.scale if self.scale else 0.0

    def refuted_by(self, certificate: Certificate) -> Separability:
        """This, but not separable, by another certificate."""
        return replace(self, status="not_separable", certificate=certificate)

    @property
    def hyperplane(self) -> Hyperplane | None:
        """The separating hyperplane, if the classes are separable."""
        if self.status != "separable":
            return None
        return Hyperplane(self.direction, self.threshold, self.margin)


def check_separability(
    X_positive: Any,
    X_negative: Any,
    *,
    precision: str | None = None,
) -> Separability:
    """Whether a hyperplane separates two finite sets of points, with a witness either way.

    Args:
        X_positive: activations [n_pos d] with label 1: a torch tensor or an array.
        X_negative: activations [n_neg d] with label 0.
        precision: dtype in which the activations were computed ("float64", "float32", "float16",
            "bfloat16"); default: the coarser of the arrays' own.

    Raises:
        InputError: shapes that do not match, an empty class, values that are not finite, or another
            precision (float8 included).

    Examples:
        >>> check_separability([[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]).status
        'not_separable'
        >>> round(check_separability([[0.0], [1.0]], [[2.0], [3.0]]).hyperplane.margin, 6)
        1.0
    """
    names = {_dtype_name(X_positive), _dtype_name(X_negative)}
    precision = precision or max(names, key=lambda name: TOLERANCES[name])
    if precision not in TOLERANCES:
        raise InputError(f"precision {precision!r} is not one of {', '.join(TOLERANCES)}")
    classes = as_float64("positive", X_positive), as_float64("negative", X_negative)
    _validate(*classes)
    points = _Points.of(*classes, precision)
    return _decide(points)


@dataclass(frozen=True)
class _Points:
    """The distinct points of each class, scaled by a power of two (exactly) to a size near 1.

    `first` holds row indices of the stacked input. Points are sorted, so that neither duplicates
    nor the order of the input change the verdict, bit for bit.
    """

    X: Float[np.ndarray, "n d"]
    positive: Bool[np.ndarray, " n"]
    first: Int[np.ndarray, " n"]
    n_input: tuple[int, int]
    unit: float
    precision: str
    contradictions: int

    @classmethod
    def of(
        cls,
        X_positive: Float[np.ndarray, "n_pos d"],
        X_negative: Float[np.ndarray, "n_neg d"],
        precision: str,
    ) -> _Points:
        stacked = np.vstack([X_positive, X_negative]) + 0.0  # -0.0 becomes 0.0
        label = np.zeros(len(stacked))
        label[: len(X_positive)] = 1.0
        unit = 2.0 ** min(int(np.frexp(np.abs(stacked).max())[1]), LARGEST_EXPONENT)
        labelled = np.column_stack([stacked / unit, label])
        labelled, first = np.unique(labelled, axis=0, return_index=True)
        X, positive = labelled[:, :-1], labelled[:, -1] > 0.5
        twins = (X[1:] == X[:-1]).all(axis=1)  # sorted, so that equal points differ only in label
        return cls(
            X=np.ascontiguousarray(X),
            positive=positive,
            first=first.astype(np.int64),
            n_input=(len(X_positive), len(X_negative)),
            unit=unit,
            precision=precision,
            contradictions=int(twins.sum()),
        )

    @property
    def tolerance(self) -> float:
        return TOLERANCES[self.precision]

    @property
    def scale(self) -> float:
        return float(np.linalg.norm(self.X, axis=1).max())

    @property
    def radius(self) -> float:
        return float(np.linalg.norm(self.X - self.X.mean(axis=0), axis=1).max())

    @property
    def classes(self) -> tuple[Float[np.ndarray, "n_pos d"], Float[np.ndarray, "n_neg d"]]:
        return self.X[self.positive], self.X[~self.positive]

    def hyperplane(self, direction: Float[np.ndarray, " d"]) -> Hyperplane | None:
        """The hyperplane along this direction, with its gap verified on the points."""
        norm = np.linalg.norm(direction)
        if not (np.isfinite(norm) and norm > 0):
            return None
        unit_direction = direction / norm
        scores = self.X @ unit_direction
        above, below = scores[self.positive].min(), scores[~self.positive].max()
        return Hyperplane(unit_direction, float((above + below) / 2), float(above - below))

    def certificate(self, weights: Float[np.ndarray, " n"]) -> Certificate:
        """Weights over these points as a certificate, with its residual verified on them."""
        positive, negative = weights[self.positive], weights[~self.positive]
        unverified = Certificate(positive, negative, np.inf)
        return Certificate(positive, negative, unverified.verify(*self.classes))

    def on_input(self, certificate: Certificate) -> Certificate:
        """The certificate on the original rows, in their units."""
        weights = np.zeros(sum(self.n_input))
        weights[self.first[self.positive]] = certificate.positive_weights
        weights[self.first[~self.positive]] = certificate.negative_weights
        return Certificate(
            weights[: self.n_input[0]],
            weights[self.n_input[0] :],
            certificate.residual * self.unit,
        )


def _decide(points: _Points) -> Separability:
    frame = hulls.frame(points.X, negligible=points.tolerance * points.radius / 8)
    smallest_margin = points.tolerance * points.scale
    largest_residual = points.tolerance * points.radius / 2
    best: Hyperplane | None = None
    stopped = True
    for proposal in _proposals(points, frame):
        if proposal is None:
            break
        plane = points.hyperplane(proposal.direction)
        if plane is not None and (best is None or plane.margin > best.margin):
            best = plane
        if best is not None and best.margin > smallest_margin:
            return _verdict(points, frame, _widen(points, best), None, "a hyperplane separates")
        if proposal.weights is not None:
            polished = hulls.polish(frame.coordinates, points.positive, proposal.weights)
            certificate = points.certificate(polished)
            if certificate.residual <= largest_residual:
                return _verdict(points, frame, best, certificate, "the classes' hulls meet")
    else:
        stopped = False
    reason = (
        "the linear program stopped without an answer"
        if stopped
        else "any margin is below the activations' precision"
    )
    return _verdict(points, frame, best, None, reason, undecided=True)


def _proposals(points: _Points, frame: hulls.Frame) -> Iterator[hulls.Proposal | None]:
    """Candidate directions and weights in the original space, cheapest first; None: LP failed."""
    positive, U = points.positive, frame.coordinates
    means = points.X[positive].mean(axis=0) - points.X[~positive].mean(axis=0)
    yield hulls.Proposal(means, _contradiction(points))
    if U.shape[1] == 0:
        return
    yield hulls.Proposal(frame.direction(hulls.interpolating_direction(U, positive)))
    for proposal in hulls.logistic_proposals(U, positive):
        yield hulls.Proposal(frame.direction(proposal.direction), proposal.weights)
    solved = hulls.linear_programme(U, positive)
    yield solved and hulls.Proposal(frame.direction(solved.direction), solved.weights)


def _contradiction(points: _Points) -> Float[np.ndarray, " n"] | None:
    """All weight on one activation that occurs under both labels; None if there is none."""
    if not points.contradictions:
        return None
    twin = int(np.argmax((points.X[1:] == points.X[:-1]).all(axis=1)))
    weights = np.zeros(len(points.X))
    weights[[twin, twin + 1]] = 1.0
    return weights


def _widen(points: _Points, plane: Hyperplane) -> Hyperplane:
    """The maximum-margin hyperplane if it is cheap to compute, else the given one."""
    if len(points.X) > WIDEST_GAP_LIMIT:
        return plane
    flat = hulls.frame(points.X, negligible=0.0)
    basis, _ = np.linalg.qr(flat.axes)
    direction = hulls.widest_margin((points.X - points.X.mean(axis=0)) @ basis, points.positive)
    wider = None if direction is None else points.hyperplane(basis @ direction)
    return wider if wider is not None and wider.margin > plane.margin else plane


def _verdict(
    points: _Points,
    frame: hulls.Frame,
    plane: Hyperplane | None,
    certificate: Certificate | None,
    reason: str,
    undecided: bool = False,
) -> Separability:
    status: Status = "undecided" if undecided else "separable"
    if certificate is not None:
        status = "not_separable"
    n_distinct = len(points.X) - points.contradictions
    affine_dim = frame.coordinates.shape[1]
    d = points.X.shape[1]
    return Separability(
        status=status,
        margin=plane.margin * points.unit if plane else 0.0,
        direction=plane.direction if plane else np.zeros(d),
        threshold=plane.threshold * points.unit if plane else 0.0,
        certificate=points.on_input(certificate) if certificate else None,
        reason=reason,
        precision=points.precision,
        tolerance=points.tolerance * points.scale * points.unit,
        scale=points.scale * points.unit,
        n_points=n_distinct,
        affine_dim=affine_dim,
        chance=cover_probability(n_distinct, affine_dim),
        contradictions=points.contradictions,
    )


def _validate(X_positive: Float[np.ndarray, "..."], X_negative: Float[np.ndarray, "..."]) -> None:
    for name, X in (("positive", X_positive), ("negative", X_negative)):
        if X.ndim != 2:
            raise InputError(f"the {name} class has shape {X.shape}; expected [points, width]")
        if len(X) == 0:
            raise InputError(
                f"the {name} class is empty: separability needs points of both classes"
            )
        if X.shape[1] == 0:
            raise InputError(f"the {name} class has points of no dimensions")
        if not np.isfinite(X).all():
            raise InputError(f"the {name} class has NaN or infinite activations")
    if X_positive.shape[1] != X_negative.shape[1]:
        raise InputError(
            f"the classes have different widths: {X_positive.shape[1]} and {X_negative.shape[1]}"
        )


def _dtype_name(X: Any) -> str:
    name = str(getattr(X, "dtype", "float64")).removeprefix("torch.")
    if name.startswith(("float8", "float4")):
        raise InputError(
            f"{name} is too coarse to decide separability; use activations of higher precision"
        )
    return name if name in TOLERANCES else "float64"
