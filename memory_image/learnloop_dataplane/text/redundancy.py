"""When a text says nothing that another one did not say: the rules of consolidation and of the gate for echoes. Pure.

They err on the side of two memories: junk costs a little, a correction taken for a repetition costs the truth.
"""

import re
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

import orjson

from learnloop_dataplane.text.tokenizer import MAX_TEXT, words

NEAR = 0.8  # of their words, two memories share
ECHOED = 0.8  # of its three-word runs, a memory took from what was recalled just before
SHORTEST_ECHO = 6  # words; shorter texts repeat by chance
# What changes the meaning of all the rest. `words` splits at apostrophes: isn't is `isn` and `t`.
_TELLING = re.compile(
    r"\d|^(not|no|never|none|without|nor|neither|cannot|t|except|unless|only|until|if|hardly|rarely|seldom|almost"
    r"|former|formerly|longer|anymore|(can|do|wo|is|did|does|was|are|were|has|have|had|could|would|should|must)nt?)$"
)
# Words whose absence changes nothing. Prepositions are none: "from here" is not "to here".
_FILLERS = frozenset("a an and as be been i is it its our so that the there this we".split())  # noqa: SIM905


def stems(text: str) -> list[str]:
    """The words that count, in their order, each once; a plural is its singular."""
    tokens = words(text)
    kept = [word for word in tokens if word not in _FILLERS] or tokens
    return list(dict.fromkeys(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in kept))


def reworded(one: Sequence[str], other: Sequence[str]) -> bool:
    """Do these stems say the same: four fifths shared, in the same order, and one of them only adds words?

    "gate 4" and "gate 5" are two memories, "is open" and "is not open", "approved" and "rejected", and also "alice
    pays bob" and "bob pays alice".
    """
    mine, theirs = frozenset(one), frozenset(other)
    shared = mine & theirs
    if len(shared) < NEAR * len(mine | theirs) or (mine - shared and theirs - shared):
        return False
    if any(map(telling, mine ^ theirs)):
        return False
    return [word for word in one if word in shared] == [word for word in other if word in shared]


def telling(word: str) -> bool:
    """A number, a negation or a limit."""
    return _TELLING.search(word) is not None


def edited(tokens: Sequence[str], sources: Sequence[Hashable | None]) -> bool:
    """Was what had been shown changed in the telling? A few words before it and after it are no change.

    Args:
        tokens: of the text that came back.
        sources: for each run of three of them who had been shown with it; None for nobody.
    """
    known = {word for place, source in enumerate(sources) if source is not None for word in tokens[place : place + 3]}
    if any(telling(word) for word in tokens if word not in known):
        return True
    covered = [place for place, source in enumerate(sources) if source is not None]
    # Where a gap's two sides come from two memories, somebody strung them together; from one, words were replaced.
    gaps = pairwise(covered)
    return any(after - before > 1 and sources[before] == sources[after] for before, after in gaps)


def details(content: dict[str, Any]) -> frozenset[str]:
    """What a memory says beside the text that is searched: its other fields as JSON, and the end of a long text."""
    text = content.get("text")
    if not isinstance(text, str):
        return frozenset({orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode()})
    rest = frozenset(
        orjson.dumps([name, value], option=orjson.OPT_SORT_KEYS).decode()
        for name, value in content.items()
        if name != "text"
    )
    return rest | {text[MAX_TEXT:]} if len(text) > MAX_TEXT else rest
