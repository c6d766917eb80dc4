"""What share of a generated text's words are last names that the text has told."""

from interp_toolkit.toys.random_attention.texts import END_CHANCE, PEOPLE, WORDS_A_SENTENCE


def told_share() -> float:
    """The expected share of told last names among words and ends of documents, read whole.

    A sentence names a given person with chance 2 / PEOPLE, and every person named is new once.
    """
    stays, sentences, unnamed = 1 - END_CHANCE, 1 / END_CHANCE, 1 - 2 / PEOPLE
    never = END_CHANCE * unnamed / (1 - stays * unnamed)
    told = 2 * sentences - PEOPLE * (1 - never)
    return told / (WORDS_A_SENTENCE * sentences + 1)
