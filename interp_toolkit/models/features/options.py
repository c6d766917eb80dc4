"""The options of analyses that can be given features from elsewhere than the data's columns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from interp_toolkit.models.features.feature_sets import FeatureSet, read_features
from interp_toolkit.options import Flag, Options


class FeatureOptions(Options):
    """The definition of a feature, and the reading of an SAE's latents."""

    features: Annotated[Any, Flag(metavar="SAE_FOLDER|embeddings|FILE")] = Field(
        None,
        description="What counts as a feature: an SAE's latents, tokens, token sets or directions; "
        "default: the data's columns, or tokens.",
    )
    feature_side: Literal["decoder", "encoder"] | None = Field(
        None, description="Directions of an SAE's latents; default: decoder."
    )
    threshold: float | None = Field(
        None, description="An SAE's latents are on above it; default: 0."
    )

    @model_validator(mode="after")
    def _about_features(self) -> FeatureOptions:
        values = [self.features, *(getattr(self, name, None) for name in _SIDES)]
        if all(spec is None for spec in values):
            for name in ("feature_side", "threshold"):
                if getattr(self, name) is not None:
                    flag = f"--{name.replace('_', '-')}"
                    raise ValueError(f"{flag} is about --features, which is not given")
        return self

    def read(self, spec: Any, model: Any) -> FeatureSet | None:
        """The features that a word, a file, a folder or an array stands for; None of None.

        Raises InputError as `read_features`.
        """
        if spec is None:
            return None
        side, threshold = self.feature_side or "decoder", self.threshold or 0.0
        return read_features(spec, model, side=side, threshold=threshold)


_SIDES = ("query_features", "key_features")
