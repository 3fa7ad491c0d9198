"""Recognises what words of a question cannot find: standing instructions, preferences, and questions of another form.

The rules are patterns in `statements.toml`, of one sentence each, in a dozen languages. They prefer an ordinary
statement: a wrong kind makes a memory 1.5 times as likely, a missed one leaves it as it is.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from importlib.resources import files
from itertools import chain, takewhile
from typing import Any

MOST_TEXT = 4000  # characters of a memory or a question that are looked at
MOST_SENTENCE = 600
YEARS = range(1900, 2100)  # numbers that may be years
LATIN = ("en", "de", "fr", "es", "it", "pt", "nl")
ASSISTANTS = frozenset("assistant ai bot chatbot agent model system developer tool function gpt llm".split())  # noqa: SIM905
_UNSEEN = re.compile(r"[\u00ad\u0640\u064b-\u0652\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")  # and Arabic vowels
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|^\s*>.*?$|[“„«「『][^”“»」』]{0,300}[”“»」』]|\"[^\"\n]*\"", re.DOTALL | re.MULTILINE
)
_SPLIT = re.compile(r"(?<=\.)\s+|[\n\r]+|(?<=[。!?;؟؛।])\s*")


class Kind(IntEnum):
    """Kind of statement that a memory holds; stored in the column `kind`."""

    STATEMENT = 0
    PREFERENCE = 1
    INSTRUCTION = 2
    WITHDRAWAL = 3  # ends an instruction or preference that was given before
    REPLACEMENT = 4  # an instruction that ends one before it, too: "do not … any more"
    RESET = 5  # ends all instructions that its speaker gave before


class Form(IntEnum):
    """Form of a question: about a fact, about an order in time, or about the whole of something."""

    FACT = 0
    ORDER = 1
    SUMMARY = 2


def kind_of(text: str, speaker: str = "", role: str = "") -> Kind:
    """The kind of a statement; an assistant's is always an ordinary one."""
    if not is_person(speaker, role):
        return Kind.STATEMENT
    parts = _sentences(text)
    languages = LATIN if text.isascii() else ()
    resets, withdrawals = (_rules(name, *languages) for name in ("resets", "withdrawals"))
    # After a colon at the end of a line, and in a long text, others may speak.
    own = takewhile(lambda part: not part.endswith(":"), parts if len(text) <= MOST_SENTENCE else ())
    firm = [part for part in own if not part.endswith(("?", "？", "؟"))]
    ends = [part for part in firm if resets.search(part) or (withdrawals.search(part) and not _has_condition(part))]
    rest = [part for part in parts if part not in ends]
    if any(_rules("instructions", *languages).search(part) for part in rest):
        replaces = ends or any(_rules("prohibitions", *languages).search(part) for part in rest)
        return Kind.REPLACEMENT if replaces else Kind.INSTRUCTION
    if ends:
        return Kind.RESET if any(map(resets.search, ends)) else Kind.WITHDRAWAL
    prefers = any(_rules("preferences", *languages).search(part) for part in rest)
    return Kind.PREFERENCE if prefers else Kind.STATEMENT


def subject(text: str, kind: Kind) -> tuple[str, bool]:
    """The words that say what a statement is about, of the sentences that gave it its kind; and whether it denies."""
    parts, latin = _sentences(text), LATIN if text.isascii() else ()
    rules = ("withdrawals", "prohibitions") if kind >= Kind.WITHDRAWAL else ("instructions", "preferences")
    languages = {part: _languages(part, *rules) if kind else [] for part in parts}
    stating = [part for part in parts if languages[part]] or parts
    about = [_rules("withdrawing", *(languages[part] or latin)).sub(" ", part) for part in stating]
    return "\n".join(about), any(_rules("negations", *languages[part]).search(part) for part in stating)


def _languages(part: str, *rules: str) -> list[str]:
    """The languages in which one of these rules finds something."""
    return [each for each in _patterns()["withdrawing"] if any(_rules(name, each).search(part) for name in rules)]


def _has_condition(withdrawal: str) -> bool:
    """By the languages in which it is a withdrawal: "als" and "si" mean something else in others."""
    return any(
        _rules("conditions", language).search(withdrawal)
        for language in _patterns()["conditions"]
        if _rules("withdrawals", language).search(withdrawal)
    )


def is_person(speaker: str, role: str = "") -> bool:
    """Whether a person speaks: by the role where one is given, else by the name; unknown speakers are people."""
    if role:
        return role.strip().casefold() not in ASSISTANTS
    return not _question_rules("assistants").search(speaker.strip().casefold())


def form_of(question: str) -> Form:
    if asks("summary", question):
        return Form.SUMMARY
    return Form.ORDER if asks("order", question) else Form.FACT


def about(question: str, form: Form) -> str:
    """The question without the words that only say how to answer."""
    return question if form == Form.FACT else _question_rules("asking").sub(" ", _plain(question))


def asks(rules: str, question: str) -> bool:
    """Whether the rules (`assistant`: what it said; `first_person`: of who asks; `amount`: a time or an amount) find
    something: of a long question in its first and last words, for some look far ahead."""
    return bool(_question_rules(rules).search(_plain(_ends_of(question, MOST_TEXT))))


@cache
def vocabulary(name: str) -> str:
    """Words of times and `amounts`."""
    return " ".join([*_patterns()["questions"][name], *map(str, chain(range(100), YEARS))])


def _sentences(text: str) -> list[str]:
    """Sentences in lower case, without marks of lists and what is quoted."""
    parts = _SPLIT.split(_plain(_QUOTED.sub(" ", text[:MOST_TEXT])))
    return [part.strip(" \t-*•#'()")[:MOST_SENTENCE] for part in parts if part.strip()]


def _plain(text: str) -> str:
    folded = _ends_of(unicodedata.normalize("NFKC", text), len(text) + MOST_TEXT)  # one sign may become eighteen
    return _UNSEEN.sub("", folded.replace("’", "'").lower()).replace("،", ",")


def _ends_of(text: str, most: int) -> str:
    """The text; of a longer one the beginning and the end."""
    return text if len(text) <= most else f"{text[: MOST_TEXT // 2]}\n{text[-MOST_TEXT // 2 :]}"


@cache
def _patterns() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("statements.toml").read_text(encoding="utf-8"))


@cache
def _rules(name: str, *languages: str) -> re.Pattern[str]:
    acts, opens = (_patterns()["words"][words] for words in ("act", "open"))
    return _compiled(
        pattern.replace("<act>", acts.get(language, "")).replace("<open>", opens.get(language, ""))
        for language, patterns in _patterns()[name].items()
        if not languages or language in languages
        for pattern in patterns
    )


@cache
def _question_rules(name: str) -> re.Pattern[str]:
    return _compiled(_patterns()["questions"][name])


def _compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)")
