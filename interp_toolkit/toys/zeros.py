"""A model of zeros, into which hand-set weights are written."""

from __future__ import annotations

from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer


def zeros(config: TransformerConfig) -> Transformer:
    """A model whose parameters are all 0."""
    model = Transformer(config, init_weights=False)
    for parameter in model.parameters():
        parameter.data.zero_()
    return model
