"""Audit of a skip-bigram: does a head's query for one token check for another token's key?

- there (computed from weights): the pair's score through the head's QK circuit, relative to its own
  row and column (`circuits.skip_bigrams.scores`), for token embeddings, with the p-value of this
  single pair;
- matters (on the live model): prompts of random tokens with the query token last and the key token
  at a random earlier position are compared with the same prompts with another random token there.
  In the first layer, the log odds of the query's attention to that position differ by exactly the
  difference of the two keys' scores, since positions and all other tokens are the same. The claim
  is that the median difference is large, in standard deviations of the other tokens' scores. Both
  estimates are robust (the deviation is 1.4826 times the median absolute one), since a query may
  have several keys. The interval is the asymptotic one for normal scores;
- special: the same for the key and other queries, drawn at random. If their median takes more than
  half of the query's difference away, the key is one for all queries, and no skip-bigram.

The claim is that the head attends to the key from the query; its output is not tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from interp_toolkit.auditing.claims.kinds import PairClaim
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import Part, measured, untestable
from interp_toolkit.auditing.threshold import stable_part
from interp_toolkit.circuits.skip_bigrams.find import token_pair_score
from interp_toolkit.circuits.skip_bigrams.scores import p_values
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import answer_by, answer_of
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.models.model import Head
from interp_toolkit.models.running.streaming import collect
from interp_toolkit.results import head_name
from interp_toolkit.stats import COVERAGE, Share

CLAIMED = 2.5  # standard deviations above other tokens; normal scores reach it once in 161 times
ROWS = 256
LONGEST = 24  # tokens of a prompt
MAD = 1.4826  # standard deviation over median absolute deviation, for a normal distribution
MAD_VARIANCE = 1.36  # of the logarithm of the MAD of normal values, times their number
TINY = 1e-30  # attention below this has underflowed
ASSERTED = ("matters", "special")
OTHERS = 96  # random queries
ROWS_OF_OTHER = 12  # prompts for each of them
KEEPS = 0.5  # of the query's score, beyond that of other queries


def audit_pair(claim: PairClaim, context: AuditContext) -> list[Part]:
    """The parts of a claim about a pair of tokens.

    Raises:
        InputError: an unknown head or token, or a context too short for a key, a query and one
            other token (after BOS, if prompts begin with it).
    """
    cfg, pair = context.model.cfg, claim.pair
    if pair.head.layer >= int(cfg.n_layers) or pair.head.head >= int(cfg.n_heads):
        raise InputError(f"there is no head {head_name(*pair.head)} in this model")
    for name in ("key", "query"):
        if getattr(pair, name) >= int(cfg.d_vocab):
            raise InputError(
                f"the {name} token {getattr(pair, name)} is outside the vocabulary of "
                f"{int(cfg.d_vocab)}"
            )
    audit = _PairAudit(claim, context)
    return [audit.there(), audit.matters(), audit.special(), audit.stable()]


@dataclass(frozen=True, eq=False)
class _PairAudit:
    """Audit of one head and one pair of tokens."""

    claim: PairClaim
    context: AuditContext

    @property
    def bound(self) -> float:
        """The smallest effect that is claimed."""
        return CLAIMED if self.claim.at_least is None else self.claim.at_least

    def there(self) -> Part:
        """The part on the pair's score in the weights."""
        pair = self.claim.pair
        context = self.context
        try:
            t, d = token_pair_score(
                *(context.model, pair.head, pair.query, pair.key),
                memory=context.memory,
                seed=context.seed,
            )
        except InputError as error:
            return untestable("there", str(error), "computed", asserted=False)
        p = float(p_values(np.array([t]), d)[0])
        alpha = (1 - self.context.coverage(1)) / 2
        answer = answer_by(t > 0 and p <= alpha)
        where = "below" if t < 0 else "above"
        text = (
            f"from the weights, its score lies {abs(t):.2f} standard deviations {where} those of "
            f"its row and column (p = {p:.2g})"
        )
        return Part("there", answer, text, "computed", value=t)

    @cached_property
    def first(self) -> int | None:
        """The BOS token with which prompts begin; None without one."""
        token = getattr(getattr(self.context.model, "tokenizer", None), "bos_token_id", None)
        prepends_bos = getattr(self.context.model.cfg, "default_prepend_bos", True)
        return int(token) if token is not None and prepends_bos else None

    @cached_property
    def effects(self) -> Float[np.ndarray, " row"]:
        """Log odds of attention to the claimed key, minus those to another token there."""
        pair = self.claim.pair
        self.context.progress("attention to the key token")
        keys, queries = np.full(ROWS, pair.key), np.full(ROWS, pair.query)
        return self._differences(keys, queries, self.context.rng(13))

    def _differences(
        self,
        keys: Int[np.ndarray, " row"],
        queries: Int[np.ndarray, " row"],
        rng: np.random.Generator,
    ) -> Float[np.ndarray, " row"]:
        n, n_pos = len(keys), min(int(self.context.model.cfg.n_ctx), LONGEST)
        first = 0 if self.first is None else 1
        if n_pos < first + 3:
            raise InputError(
                f"a context of {n_pos} tokens is too short for a key, a query and one other token"
            )
        d_vocab = int(self.context.model.cfg.d_vocab)
        rows = rng.integers(d_vocab, size=(n, n_pos))
        for tokens in (keys, queries):  # remove both from the rest of the prompt
            rows = np.where(rows == tokens[:, None], (rows + 1) % d_vocab, rows)
        if self.first is not None:
            rows[:, 0] = self.first
        rows[:, -1] = queries
        positions = rng.integers(first, n_pos - 1, size=n)
        at = np.arange(n), positions
        with_key, without = rows.copy(), rows.copy()
        with_key[at] = keys
        other = rng.integers(d_vocab, size=n)
        without[at] = np.where(other == keys, (other + 1) % d_vocab, other)
        differences: np.ndarray = self._paid(with_key, positions) - self._paid(without, positions)
        return differences

    def _paid(
        self, rows: Int[np.ndarray, "row pos"], positions: Int[np.ndarray, " row"]
    ) -> Float[np.ndarray, " row"]:
        """The log odds of the last query's attention to one position per prompt."""
        head: Head = self.claim.pair.head
        hook = f"blocks.{head.layer}.attn.hook_pattern"
        tokens = torch.from_numpy(rows)
        pattern: Tensor = collect(self.context.model, tokens, hook, -1, memory=self.context.memory)[
            hook
        ]
        paid = pattern[:, head.head].double().numpy()
        at = np.arange(len(rows)), positions
        here = paid[at]
        paid[at] = 0.0
        log_odds: np.ndarray = np.log(here + TINY) - np.log(paid.sum(1) + TINY)
        return log_odds

    def matters(self) -> Part:
        """The key's score above those of other tokens, in their standard deviations."""
        coverage = self.context.coverage(len(ASSERTED))
        share = standardised(self.effects, coverage)
        answer = answer_of(share.low, share.high, self.bound)
        text = (
            "the query's score for the key minus its score for another token at the same position "
            f"is {share.mean:.2g} [{share.low:.2g}, {share.high:.2g}] standard deviations of the "
            f"other tokens' scores ({self.effects.mean():.2g} nats of attention's log odds, "
            f"{ROWS} random prompts); claimed: at least {self.bound:g}"
        )
        return measured("matters", answer, text, "intervened", share, self.bound, coverage, True)

    def special(self) -> Part:
        """Other queries for the same key."""
        rng, d_vocab = self.context.rng(14), int(self.context.model.cfg.d_vocab)
        coverage = self.context.coverage(len(ASSERTED))
        key, query = self.claim.pair.key, self.claim.pair.query
        others = np.setdiff1d(np.arange(d_vocab), [key, query])
        if not len(others):
            text = "the vocabulary has no other token that could be the query"
            return untestable("special", text, "intervened")
        queries = np.repeat(rng.choice(others, OTHERS), ROWS_OF_OTHER)
        effects = self._differences(np.full(len(queries), key), queries, rng)
        own, rest = float(np.median(self.effects)), float(np.median(effects))
        wide = float(stats.norm.ppf((1 + coverage) / 2)) * math.hypot(
            KEEPS * _error(self.effects), _error(effects)
        )
        if not own > 0:
            text = "the query does not score the key higher than another token"
            return Part("special", answer_by(False), text, "intervened", True)
        share = Share(1 - rest / own, 1 - (rest + wide) / own, 1 - (rest - wide) / own)
        answer = answer_of(share.low, share.high, KEEPS)
        text = (
            f"{percent_ci(share)} of that difference is beyond that of {OTHERS} random queries for "
            f"the same key; needed: at least {percent(KEEPS)}"
        )
        return measured("special", answer, text, "intervened", share, KEEPS, coverage, True)

    def stable(self) -> Part:
        """The effect on resampled prompts, in the units of the claim."""
        share = standardised(self.effects, COVERAGE)
        if math.isnan(share.mean):
            text = "the query scores most other tokens alike, so there is no scale"
            return Part("stable", answer_by(False), text, "intervened")
        units = self.effects * (share.mean / float(np.median(self.effects)))
        return stable_part(units, self.bound, None, self.context.rng(15), is_fraction=False)


def _error(values: Float[np.ndarray, " row"]) -> float:
    """The standard error of the median, for normal values."""
    spread = MAD * float(np.median(np.abs(values - np.median(values))))
    return spread * math.sqrt(math.pi / 2 / len(values))


def standardised(values: Float[np.ndarray, " row"], coverage: float) -> Share:
    """The median in standard deviations, both robust, with its normal interval; see the module.

    For normal values, the asymptotic variances, times the number of values, are pi / 2 for the
    median in standard deviations, and 1.36 for the log of the deviation. If more than half of the
    values are equal, the deviation is 0, and the result is NaN.
    """
    middle = float(np.median(values))
    spread = MAD * float(np.median(np.abs(values - middle)))
    if spread <= 1e-9 * max(abs(middle), 1e-30):
        return Share(float("nan"), float("nan"), float("nan"))
    z = middle / spread
    error = math.sqrt((math.pi / 2 + MAD_VARIANCE * z * z) / len(values))
    wide = float(stats.norm.ppf((1 + coverage) / 2)) * error
    return Share(z, z - wide, z + wide)
