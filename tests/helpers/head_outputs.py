"""What each head of a layer writes at one position, read off along each axis by itself."""

import numpy as np
import torch

from interp_toolkit.models.weights.contributions import head_scores


def head_outputs(model, tokens, layer, position=None, *, memory=None):
    """[row, head, d_model], in float32."""
    axes = np.eye(model.cfg.d_model)
    scores = [head_scores(model, tokens, [layer], a, position, memory=memory) for a in axes]
    return torch.from_numpy(np.stack([s[:, 0] for s in scores], axis=-1)).float()
