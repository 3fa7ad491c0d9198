"""Prepares texts for recall: those of a memory when it is stored, those of a question when it is asked. Pure."""

import re
import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.recall import ranking, statements
from learnloop_dataplane.stems import MAX_TERMS, Analyzer, pack, root, term_hash, text_of, thread_of, words

MOST_STEMS = 64  # of a question: those at its beginning and those at its end
MOST_NAME = 64
SHORT = 120  # characters of a statement that a distiller may still call a withdrawal
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Indexed:
    """The columns of a memory that recall reads; see `ranking.Memories`."""

    terms: bytes
    named: int
    about: bytes
    session: int
    speaker: int
    person: bool
    kind: statements.Kind


def speaker_of(content: dict[str, object], given: str | None) -> str:
    """The speaker: as given, or as the content has it; empty for unknown."""
    names = (given, content.get("speaker"), content.get("role"))
    return next((name.strip()[:MOST_NAME] for name in names if isinstance(name, str) and name.strip()), "")


def index(content: dict[str, object], speaker: str, session: str | None, analyzer: Analyzer) -> Indexed:
    """The columns of one memory; its speaker's name can be searched, too."""
    text = text_of(content)
    spoken = text.removeprefix(f"{speaker}:")
    if speaker and spoken == text:
        text = f"{speaker}: {text}"
    terms, name = (analyzer.terms(each, stored=True) for each in (text, speaker))
    role = str(content.get("role") or "")
    kind = statements.kind_of(spoken, speaker, role)
    return Indexed(
        pack(terms),
        len(set(name)) if terms[: len(name)] == name else 0,
        _about(spoken, kind, analyzer) if kind or len(spoken) <= SHORT else b"",
        thread_of(session),
        name_hash(speaker),
        statements.is_person(speaker, role),
        kind,
    )


def _about(spoken: str, kind: statements.Kind, analyzer: Analyzer) -> bytes:
    about, denies = statements.subject(spoken, kind)
    # In the order of the text: "from German to English" is not about the same as "from English to German".
    subject, every = (dict.fromkeys(map(root, analyzer.terms(text, stored=True))) for text in (about, spoken))
    marks = denies * ranking.DENIES
    packed = [term_hash(each) << 8 | (each in subject) * ranking.SUBJECT | marks for each in every]
    return np.array(packed[:MAX_TERMS], "<u4").tobytes()


def name_hash(name: str) -> int:
    """A number for a speaker's first name."""
    first = words(name)[:1]
    return zlib.crc32(first[0].encode()) if first else ranking.NOBODY


def question_of(text: str, analyzer: Analyzer) -> ranking.Question:
    form = statements.form_of(text)
    about = statements.about(text, form)
    stems = list(dict.fromkeys(analyzer.terms(about))) or list(dict.fromkeys(analyzer.terms(text)))
    if len(stems) > MOST_STEMS:
        stems = stems[: MOST_STEMS // 2] + stems[-MOST_STEMS // 2 :]
    names = {name_hash(word) for word in words(text) if len(word) > 1}
    roles = names & _roles()  # a question about a user interface names no person
    names -= roles
    for run in _UNSPACED.findall(text):
        names |= {name_hash(run[i : i + n]) for n in (2, 3, 4) for i in range(len(run) - n + 1)}
    speakers = [*roles, *([name_hash("user")] if statements.asks("first_person", text) else [])]
    return ranking.Question(
        np.array(list(dict.fromkeys(map(term_hash, stems))), np.uint32),
        np.array(sorted(names), np.int64),
        np.array(speakers, np.int64),
        _stems(statements.vocabulary("amounts") if statements.asks("amount", text) else "", analyzer),
        form,
        of_all=statements.asks("assistant", text),
    )


@cache
def _stems(text: str, analyzer: Analyzer) -> NDArray[np.uint32]:
    return np.unique(np.array([term_hash(stem) for stem in analyzer.terms(text)], np.uint32))


@cache
def _roles() -> frozenset[int]:
    return frozenset(map(name_hash, ("user", "human", *statements.ASSISTANTS)))
