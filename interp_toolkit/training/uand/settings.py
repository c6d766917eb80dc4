"""The settings of `interp train uand`."""

from __future__ import annotations

from math import comb

from pydantic import Field, model_validator

from interp_toolkit.data.composites import count_composites
from interp_toolkit.training.engine.settings import Schedule, TrainingSettings

#: the most bytes that a tensor of a step may take
MOST_BYTES = 2**31


class UandTraining(TrainingSettings):
    """Settings of `interp train uand`, beside those of `TrainingSettings`; each is a `--set` key.

    Attributes:
        n_features: boolean features; the model has a logit for every pair of them.
        n_neurons: of the one ReLU layer.
        d_in: width of the input: the features are random unit vectors in it. None: one-hot.
        most_on: the largest number of features that are on together.
        power: p of the loss; 2 is the mean squared error, a high one nears the worst error.
        balanced: whether, for each pair, the inputs where it is on weigh as much as all others.
        rows: inputs a step; all there are, if they are no more than that.
    """

    n_features: int = Field(12, ge=2, le=64)
    n_neurons: int = Field(64, ge=1, le=16_384)
    d_in: int | None = Field(None, ge=1)
    most_on: int = Field(3, ge=2)
    power: int = Field(8, ge=2, le=64)
    balanced: bool = False
    rows: int = Field(4_096, ge=1, le=10_000_000)
    steps: int = Field(3_000, ge=1)
    lr: float = Field(0.02, gt=0, le=10, allow_inf_nan=False)
    schedule: Schedule = "linear"
    seeds: int = Field(4, ge=1, le=100_000)
    seed: int = Field(0, ge=0, lt=2**30)

    @model_validator(mode="after")
    def _sizes_fit(self) -> UandTraining:
        if self.most_on > self.n_features:
            raise ValueError(f"most_on is {self.most_on}, of {self.n_features} features")
        if self.d_in is not None and self.d_in > self.n_features:
            raise ValueError(
                f"d_in ({self.d_in}) is above n_features ({self.n_features}): leave it out for "
                "one-hot features"
            )
        self._check_bytes()
        return self

    def _check_bytes(self) -> None:
        """A step holds inputs x neurons and inputs x pairs: refuse what no machine would."""
        inputs = min(self.rows, count_composites(self.n_features, self.most_on))
        columns = {"neurons": self.n_neurons, "pairs": comb(self.n_features, 2)}
        what, most = max(columns.items(), key=lambda column: column[1])
        size = (8 if self.dtype == "float64" else 4) * inputs * most
        if size > MOST_BYTES:
            raise ValueError(
                f"{inputs:,} inputs x {most:,} {what} take {size / 2**30:.1f} GiB a step, more "
                f"than {MOST_BYTES / 2**30:.0f}: lower rows"
            )
