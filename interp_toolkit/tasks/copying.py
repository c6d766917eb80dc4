"""Copying tasks: random tokens or text that repeat, with the next token as the answer.

*Random tokens*: a segment of different random tokens, then its beginning again, cut off at a random
position. The wrong answer is another token of the segment. In the corrupted prompt, the answer in
the first segment is replaced by a token that the prompt does not contain.

*Text*: a sentence, then the same sentence without its last word. The nouns are sampled, so that
only the first sentence determines the last one. The wrong answer is another noun of the sentence.
In the corrupted prompt, the first sentence ends with another noun.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads", whose heads copy text too.
"""

from __future__ import annotations

import numpy as np

from interp_toolkit.data import FeatureData
from interp_toolkit.data.text.tokenization import Tokenizer
from interp_toolkit.registry import PromptTask
from interp_toolkit.tasks.rows import PromptPair, Words, cannot_hold, sample_rows

LENGTH = 24  # tokens per prompt, without those that the tokenizer adds before every text
SEGMENT = (14, 20)  # range of tokens before the repeat, end excluded


def make_copy_random(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of repeated random tokens, with answers, wrong answers and corrupted prompts."""
    words = Words(tokenizer)
    ids = words.vocabulary()
    if len(ids) <= SEGMENT[1]:
        raise cannot_hold(f"it has {len(ids)} tokens, but a prompt needs {SEGMENT[1] + 1}")

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        n_first = int(rng.integers(*SEGMENT))
        *segment, another = rng.choice(ids, n_first + 1, replace=False).tolist()
        again = LENGTH - n_first
        first = [another if i == again else token for i, token in enumerate(segment)]
        clean, corrupted = ((*words.first, *part, *segment[:again]) for part in (segment, first))
        others = [token for token in segment if token not in (segment[again], segment[again - 1])]
        return PromptPair(clean, corrupted, segment[again], int(rng.choice(others)))

    return sample_rows(draw, 1, rows, seed, "copy-random")


COPY_RANDOM = PromptTask(
    "copy-random",
    "Continue random tokens that repeat.",
    make_copy_random,
    "Olsson et al. 2022, In-context Learning and Induction Heads",
)


SENTENCES = (
    "Today the {0} brought the {1} a {2} from the",
    "Later the {0} showed the {1} a {2} near the",
    "Once the {0} left the {1} a {2} behind the",
    "Then the {0} sold the {1} a {2} for the",
)
NOUNS = (
    "teacher doctor student king writer singer player farmer book letter table picture house "
    "window chair bird horse flower truck bridge garden river street paper key box ring clock "
    "ball cup basket computer"
)


def make_copy_text(tokenizer: Tokenizer, rows: int, seed: int) -> FeatureData:
    """Prompts of repeated sentences, with answers, wrong answers and corrupted prompts."""
    words = Words(tokenizer)
    nouns = words.single_tokens(NOUNS, "nouns")

    def draw(template: int, rng: np.random.Generator) -> PromptPair | None:
        *mentioned, last, another = rng.choice(nouns, 5, replace=False).tolist()
        start = SENTENCES[template].format(*mentioned)
        clean, corrupted = (f"{start} {noun}. {start}" for noun in (last, another))
        return words.pair(clean, corrupted, f" {last}", f" {rng.choice(mentioned)}")

    return sample_rows(draw, len(SENTENCES), rows, seed, "copy-text")


COPY_TEXT = PromptTask(
    "copy-text",
    "Repeat a sentence.",
    make_copy_text,
    "Olsson et al. 2022, In-context Learning and Induction Heads",
)
