"""`fuzzy`: how similar the output is to the expected text."""

import re
from collections import Counter
from typing import ClassVar

from learnloop_api.kinds.evaluators import Evaluator, FuzzyMatch
from learnloop_dataplane.evaluators.edit_distance import edit_distance
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text, squeezed

MAX_CHARACTERS = 4096
"""The distance of two texts of this length takes some 20 ms."""
BLOCK, MOST_BLOCKS = 512, 64
"""Of longer ones: some 30 ms. A character more or less costs two in each block that follows."""
_WORD = re.compile(r"\w+")


class Fuzzy(EvaluatorType):
    """By words, or by characters; case and runs of space do not count."""

    name: ClassVar[str] = "fuzzy"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """The similarity, 0 where it is below `atLeast`."""
        settings = spec.fuzzy or FuzzyMatch()
        output, expected = (squeezed(as_text(text)).casefold() for text in (case.output, case.expected))
        found = shared_words(output, expected) if settings.measure == "words" else alike(output, expected)
        note = f"{found:.3f} similar by {settings.measure}"
        if found < settings.at_least:
            return Score(0.0, f"{note}, {settings.at_least:g} needed")
        return Score(found, note)


def shared_words(output: str, expected: str) -> float:
    """F1 of the words (Rajpurkar et al., "SQuAD", EMNLP 2016); two texts without a word are alike."""
    said, wanted = Counter(_WORD.findall(output)), Counter(_WORD.findall(expected))
    if not said or not wanted:
        return float(said == wanted)
    return 2.0 * (said & wanted).total() / (said.total() + wanted.total())


def alike(output: str, expected: str) -> float:
    """1 - edit distance / length of the longer text; never more where that takes too long to find.

    Where texts differ over more than MAX_CHARACTERS they are compared block by block, and what comes after MOST_BLOCKS
    counts as different: no long text is right by its beginning alone.
    """
    longest = max(len(output), len(expected))
    begin = _alike_for(output, expected)
    one, other = output[begin:], expected[begin:]
    end = _alike_for(one[::-1], other[::-1])
    one, other = one[: len(one) - end], other[: len(other) - end]
    differ = max(len(one), len(other))
    size = MAX_CHARACTERS if differ <= MAX_CHARACTERS else BLOCK
    reach = size if differ <= MAX_CHARACTERS else BLOCK * MOST_BLOCKS
    starts = range(0, min(differ, reach), size)
    distance = sum(edit_distance(one[at : at + size], other[at : at + size]) for at in starts)
    return 1.0 - (distance + max(0, differ - reach)) / longest if longest else 1.0


def _alike_for(one: str, other: str) -> int:
    """Characters that both begin with."""
    differing = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
