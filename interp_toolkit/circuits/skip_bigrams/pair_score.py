"""One pair's score through a head, against its own row and column, as `scores` has it for all."""

from __future__ import annotations

import torch

from interp_toolkit.circuits.skip_bigrams.find import units_of
from interp_toolkit.circuits.skip_bigrams.scores import FLOOR, Features, Form, PairScores
from interp_toolkit.circuits.weights.permutations import reciprocal
from interp_toolkit.circuits.weights.qk import qk_circuit
from interp_toolkit.circuits.weights.token_scores import seen_by
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import EMBEDDINGS, read_features
from interp_toolkit.models.model import Head, Model
from interp_toolkit.models.running.memory import parse_memory


@torch.no_grad()
def token_pair_score(
    model: Model,
    head: Head,
    query: int,
    key: int,
    *,
    distance: int = 1,
    memory: int | str | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """The t of one pair of tokens, as the embedding writes them, and its degrees of freedom.

    Args:
        model: any TransformerLens model.
        head: which.
        query: token id.
        key: token id.
        distance: query position less key position, for heads that turn them (rotary).
        memory: bound for the run.
        seed: of the samples that give medians.

    Raises:
        InputError: a head that cannot be read, or tokens without directions.
    """
    features = read_features(EMBEDDINGS, model)
    if features.directions is None:
        raise InputError(f"{features.source} have no directions, which skip-bigrams need")
    circuit = qk_circuit(model, head.layer, head.head)
    if circuit.rotary is not None:
        circuit = circuit.at_distance(distance)
    seen = seen_by(circuit.norm, features.directions.detach().double())
    units, dimensions = units_of(circuit.norm, seen, seen)
    W_Q, W_K = (circuit.W_Q / circuit.attn_scale).double(), circuit.W_K.double()
    if units is not None:
        seen, W_Q, W_K = seen * reciprocal(units), W_Q * units[:, None], W_K * units[:, None]
    form, unit = Form(W_Q, W_K), torch.nn.functional.normalize(seen, dim=1)
    pairs = Features(unit, unit, dimensions)
    scores = PairScores(form, pairs, FLOOR * form.norm() / pairs.d, seed, parse_memory(memory))
    t = scores.block(torch.tensor([query]), torch.tensor([key]))
    return float(t), scores.d
