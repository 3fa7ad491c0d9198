"""Ranks memories for one question. Pure: columns and a question in, the rows of the answer out.

1. A stem of the question counts by how often a memory has it, divided by the memory's length norm. Half of that is
   added from the memories next to it in the session, a quarter from those two away. The sum saturates, is multiplied
   by the stem's rarity, and is added up: BM25F over a memory and its neighbours.
2. Times 1 + 2 × the share of the question's stems that the memory itself has.
3. Times 1.5 where the question names the speaker, says I and the user speaks, or asks what the assistant said.
4. Times 1.5 where a person states a preference or a standing instruction, unless the question names a speaker by name.
5. Times 1.5 where the question asks for a time or an amount and the memory names one.
6. Divided by the square root of 1 + length / 100 stems.
7. Plus 0.3 × the best score of the memory's session.
8. Times 0.8 to 1.25, by what came of earlier recalls of the memory.
9. With an embedder: plus 0.75 × the z-score of the cosine above the lowest one, in units of the scores' own deviation,
   times 1.5 for the speaker as in 3. A memory without a vector counts as one of the mean cosine.

Questions for a summary leave out 4 and 6. Of memories that score alike the newest comes first. Of copies, which say the
same word for word, the best one is answered alone.
A fifth of k, one at least where k is 2 or more, goes to standing instructions, unless the question names a speaker.
Those are chosen that share most with the question and with the memories that answer it: "when is it due?" shares no
word with "format dates like this when I ask about deadlines". Where they leave a place, a preference has it that
shares a word with the question; a speaker's name does not count. Questions of order and for a summary spread over
what people said, and over everything where they ask what the assistant said or people's words do not suffice; one
place goes to an instruction that shares a word with the question. An order is answered as it was said. A summary
prefers short memories and words that are new in it, and takes the replies to what was said.
"""

from collections import defaultdict
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.recall.statements import Form, Kind

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

# Picked by leaving out one of three sets after the other, those of instructions and summaries on BEAM alone;
# docs/measurements/memory.md has the figures.
K1, B = 1.2, 0.5
NEIGHBOURS = (0.5, 0.25)  # weight of a memory next to this one, and of one two away
COVERAGE = 2.0
SPEAKER = 1.5
KIND = 1.5
AMOUNT = 1.5
LONG = 100.0  # stems
SESSION = 0.3
OUTCOME = 1.25
COSINE = 0.75
STANDING = 5  # one in so many of k may be a standing instruction, or else a preference
TOPIC = 0.3  # weight of stems that an instruction shares with the best memories and not with the question
APART, REACH = 0.3, 30.0  # of an order or a summary: how much a chosen memory lowers those around it, and how far
NEW_WORDS = 1.0  # of a summary: weight of stems that no chosen memory has
MOST_STATED = 2000  # instructions, preferences and withdrawals that are compared
NOBODY = 0  # the hash of an unknown speaker
EVERY = -1  # stands for each root
SUBJECT, DENIES = 1, 2  # marks of a root: it says what the statement is about; the statement denies


@dataclass(frozen=True)
class Memories:
    """Columns over n memories in the order of their sessions, and within these as they were said.

    Attributes:
        ids: bytes [n, 16].
        words: hash << 8 | count of every distinct stem, memory by memory, uint32 [m].
        distinct: how many distinct stems each memory has, int64 [n].
        named: how many of these, the first, name its speaker, int64 [n].
        about: hash << 8 | marks of the roots of instructions, preferences and what ends them, uint32 [r].
        roots: how many of these each memory has, int64 [n].
        sessions: int64 [n]; 0 where a memory belongs to no session.
        same: hash of all that is said, which copies share, int64 [n].
        owners: hash of agent, person and speaker, int64 [n].
        spoken_at: a time, int64 [n].
        speakers: hash of the speaker's name, int64 [n].
        kinds: codes of `Kind`, int64 [n]; of what is ranked, after `standing_kinds`.
        persons: whether a person and not an assistant speaks, bool [n].
        outcomes: from -1 to 1, float64 [n].
        cosines: with the question's vector, float64 [n]; NaN for a memory without a vector of the same embedder.
    """

    ids: NDArray[np.uint8]
    words: NDArray[np.uint32]
    distinct: NDArray[np.int64]
    named: NDArray[np.int64]
    about: NDArray[np.uint32]
    roots: NDArray[np.int64]
    sessions: NDArray[np.int64]
    same: NDArray[np.int64]
    owners: NDArray[np.int64]
    spoken_at: NDArray[np.int64]
    speakers: NDArray[np.int64]
    kinds: NDArray[np.int64]
    persons: NDArray[np.bool_]
    outcomes: Floats
    cosines: Floats

    def __len__(self) -> int:
        return len(self.distinct)

    def holders(self) -> Rows:
        """The memory of each stem."""
        return np.repeat(np.arange(len(self)), self.distinct)

    def as_spoken(self, rows: Rows) -> Rows:
        """The rows in the order of time; those of one batch have one time, and ids in its order."""
        high, low = self.ids[rows].view(">u8").T
        return rows[np.lexsort((low, high, self.spoken_at[rows]))]

    def only(self, rows: NDArray[np.bool_]) -> "Memories":
        """These rows alone."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        words, about = self.words[np.repeat(rows, self.distinct)], self.about[np.repeat(rows, self.roots)]
        rest = {name: column[rows] for name, column in columns.items() if name not in ("words", "about")}
        return Memories(words=words, about=about, **rest)


@dataclass(frozen=True)
class Question:
    """The question in the terms of the ranking.

    Attributes:
        stems: hashes of the distinct stems, uint32 [q].
        names: hashes of what may be a speaker's name, int64.
        speakers: hashes of `user` and of words for roles, where the question is about what they said, int64.
        amounts: hashes of the stems of times and amounts, where the question asks for one, uint32, ascending.
        form: of the answer.
        of_all: whether it asks what the assistant said: in an order or a summary that then belongs to it, too.
    """

    stems: NDArray[np.uint32]
    names: NDArray[np.int64]
    speakers: NDArray[np.int64]
    amounts: NDArray[np.uint32]
    form: Form = Form.FACT
    of_all: bool = False


@dataclass(frozen=True)
class Population:
    """All memories that these were chosen from, where they are not all.

    Attributes:
        size: how many there are.
        frequency: in how many of them each of the question's stems occurs, float64 [q].
        length: mean number of stems.
    """

    size: int
    frequency: Floats
    length: float

    @classmethod
    def of(cls, memories: Memories, question: Question) -> "Population":
        """These memories, where they are all."""
        counts, lengths = _counts(memories, question.stems)
        length = float(lengths.mean()) if len(lengths) else 0.0
        return cls(len(memories), (counts > 0).sum(axis=1).astype(np.float64), max(length, 1.0))

    def __add__(self, other: "Population") -> "Population":
        size = self.size + other.size
        length = (self.size * self.length + other.size * other.length) / max(size, 1)
        return Population(size, self.frequency + other.frequency, max(length, 1.0))


@dataclass(frozen=True)
class Answer:
    """Rows of the answer, best first (of an order: as they were said), their scores, and a word why for each."""

    rows: list[int]
    scores: list[float]
    why: list[str]


def rank(memories: Memories, question: Question, k: int, population: Population | None = None) -> Answer:
    """The k best memories.

    Args:
        population: given where `memories` are only those worth ranking.
    """
    if not len(memories) or not k:
        return Answer([], [], [])
    ranking = _Ranking(memories, question, population)
    rows = ranking.best(k)
    return Answer(rows, [round(float(ranking.scores[row]), 6) for row in rows], [ranking.why(row) for row in rows])


class _Ranking:
    def __init__(self, memories: Memories, question: Question, population: Population | None) -> None:
        self.memories, self.question = memories, question
        self.counts, lengths = _counts(memories, question.stems)
        self.has = self.counts > 0
        size = population.size if population else len(memories)
        frequency = population.frequency if population else self.has.sum(axis=1)
        self.rarity = np.log1p((np.maximum(size - frequency, 0) + 0.5) / (frequency + 0.5))
        mean = population.length if population else float(lengths.mean())
        self.named = bool(np.isin(question.names, memories.speakers[memories.speakers != NOBODY]).any())
        meant = np.isin(memories.speakers, np.append(question.names, question.speakers))
        meant = (meant & (memories.speakers != NOBODY)) | (question.of_all & ~memories.persons)
        self.speaker = np.where(meant, SPEAKER, 1.0)
        words = self._words(1 - B + B * lengths / max(mean, 1.0))
        if question.form != Form.SUMMARY:
            words *= 1 / np.sqrt(1 + lengths / LONG)
        self.meaning = np.zeros(len(memories))
        self.scores = (words + SESSION * _best_of_session(words, memories.sessions)) * OUTCOME**memories.outcomes
        if not np.isnan(memories.cosines).all():
            unit, z = COSINE * float(self.scores.std() or 1.0), _z_scores(memories.cosines)
            self.meaning = unit * z - self.scores
            self.scores = self.scores + unit * (z - z.min()) * self.speaker
        self.ranked = np.lexsort((-memories.spoken_at, -self.scores))  # of equal ones the newest
        if (np.diff(np.sort(memories.same)) == 0).any():
            # Of copies one that still stands: of the same words, given again, the older may be withdrawn.
            stands = np.isin(memories.kinds, (Kind.INSTRUCTION, Kind.PREFERENCE))
            copies = self.ranked[np.argsort(~stands[self.ranked], kind="stable")]
            copies = copies[np.unique(memories.same[copies], return_index=True)[1]]
            self.ranked = self.ranked[np.isin(self.ranked, copies)]

    def _words(self, norm: Floats) -> Floats:
        """Steps 1 to 5."""
        own = self.counts / norm
        total = own.copy()
        sessions = self.memories.sessions
        for distance, weight in enumerate(NEIGHBOURS, 1):
            together = weight * ((sessions[distance:] == sessions[:-distance]) & (sessions[distance:] != 0))
            total[:, distance:] += own[:, :-distance] * together
            total[:, :-distance] += own[:, distance:] * together
        score: Floats = self.rarity @ (total * (K1 + 1) / (total + K1))
        if len(self.has):
            score *= 1 + COVERAGE * self.has.mean(axis=0)
        score *= self.speaker
        if self.question.form != Form.SUMMARY and not self.named:
            stated = (self.memories.kinds == Kind.PREFERENCE) | (self.memories.kinds == Kind.INSTRUCTION)
            score *= np.where(stated, KIND, 1.0)
        if len(self.question.amounts):
            score *= np.where(_with_any(self.memories, self.question.amounts), AMOUNT, 1.0)
        return score

    def best(self, k: int) -> list[int]:
        """The rows of the answer."""
        fact = self.question.form == Form.FACT
        rows: list[int] = self.ranked[:k].tolist() if fact else self._spread(k)
        places = 0 if self.named else min(max(k // STANDING, 1) if fact else 1, k - 1)
        fitting = self._fitting(Kind.INSTRUCTION, rows if fact else [])[:places]
        if fact and len(fitting) < places:
            fitting += self._fitting(Kind.PREFERENCE, [])[:1]
        for row in [row for row in fitting if row not in rows]:
            if others := [place for place, other in enumerate(rows) if other not in fitting]:
                rows.pop(others[-1])
                rows.append(row)
        if self.question.form == Form.ORDER:
            rows = self.memories.as_spoken(np.array(rows, int)).tolist()
        return rows

    def _fitting(self, kind: Kind, best: list[int]) -> list[int]:
        """Memories of a kind that share stems with the question or with the best memories, best first."""
        memories, rows = self.memories, np.arange(len(self.memories))
        standing = np.sort(self.ranked[memories.kinds[self.ranked] == kind])
        if not (best or self.has[:, standing].any()) or not len(standing):
            return []
        owners, firsts = memories.holders(), np.cumsum(memories.distinct) - memories.distinct
        ahead = np.arange(len(owners)) < np.repeat(firsts + memories.named, memories.distinct)
        stems = np.where(ahead, 0, memories.words >> 8)  # a speaker's name makes none fit
        inside = np.repeat(np.isin(rows, standing), memories.distinct)
        fit, few, whose = np.zeros(len(standing)), stems[inside], owners[inside]
        for stem, rarity in zip(self.question.stems, self.rarity, strict=True):
            fit += rarity * np.isin(standing, whose[few == stem])
        shown = stems[np.repeat(np.isin(rows, best), memories.distinct)] if best else few[:0]
        topic, shown = np.unique(shown[(shown > 0) & np.isin(shown, few)], return_counts=True)
        if len(topic):
            places = np.minimum(np.searchsorted(topic, stems), len(topic) - 1)
            has = topic[places] == stems
            frequency = np.bincount(places[has], minlength=len(topic))
            rarity = np.log1p((len(memories) - frequency + 0.5) / (frequency + 0.5))
            weights = (rarity * shown / len(best))[places[has]]
            fit += TOPIC * np.bincount(owners[has], weights, len(memories))[standing]
        return [int(standing[place]) for place in np.argsort(-fit, kind="stable") if fit[place] > 0]

    def _spread(self, k: int) -> list[int]:
        """People's words, one after the other, each lowered by those chosen around it.

        For a summary those with the most words that no chosen memory has, each with its reply.
        """
        memories, summary = self.memories, self.question.form == Form.SUMMARY
        scores = self.scores / (1 + _lengths(memories) / LONG) ** 0.25 if summary else self.scores
        first = memories.persons | self.question.of_all
        places = np.arange(len(scores))
        free = np.isin(places, self.ranked)
        apart = np.ones(len(scores))
        covered = np.zeros(len(self.rarity), bool)
        total = max(float(self.rarity.sum()), 1e-9)
        rows: list[int] = []
        while len(rows) < k and free.any():
            left = np.flatnonzero(free)
            left = left[first[left]] if first[left].any() else left
            new = NEW_WORDS * (self.rarity * ~covered) @ self.has[:, left] / total if summary else 0.0
            row = int(left[np.argmax(scores[left] * apart[left] * (1 + new))])
            rows.append(row)
            free[row] = False
            covered |= self.has[:, row]
            apart *= 1 - APART * np.exp(-np.abs(places - row) / REACH)
            if summary and len(rows) < k and self._is_reply(row + 1) and free[row + 1]:
                rows.append(row + 1)
                free[row + 1] = False
        return rows

    def _is_reply(self, row: int) -> bool:
        """Whether this is an assistant's, and the memory before it of the same session."""
        sessions = self.memories.sessions
        return row < len(sessions) and sessions[row - 1] == sessions[row] != 0 and not self.memories.persons[row]

    def why(self, row: int) -> str:
        """The reason for a memory in the answer, in one word."""
        if self.memories.kinds[row] == Kind.INSTRUCTION and not self.named:
            return "instruction"
        if self.question.form != Form.FACT:
            return "order" if self.question.form == Form.ORDER else "cover"
        if self.memories.kinds[row] == Kind.PREFERENCE and not self.named:
            return "preference"
        if self.meaning[row] > 0:
            return "meaning"
        return "words" if self.has[:, row].any() else "context"


def _counts(memories: Memories, stems: NDArray[np.uint32]) -> tuple[Floats, Floats]:
    """How often each memory has each stem, float64 [q, n], and how many stems it has, float64 [n]."""
    counts = np.zeros((len(stems), len(memories)))
    if len(stems) and len(memories.words):
        order = np.argsort(stems)
        hashes = memories.words >> 8
        places = order[np.minimum(np.searchsorted(stems, hashes, sorter=order), len(stems) - 1)]
        has = stems[places] == hashes
        counts[places[has], memories.holders()[has]] = memories.words[has] & 255
    return counts, _lengths(memories)


def _with_any(memories: Memories, stems: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether each memory has one of these stems, which ascend."""
    hashes = memories.words >> 8
    matches = stems[np.minimum(np.searchsorted(stems, hashes), len(stems) - 1)] == hashes
    has: NDArray[np.bool_] = np.bincount(memories.holders(), matches, len(memories)) > 0
    return has


def _lengths(memories: Memories) -> Floats:
    lengths: Floats = np.bincount(memories.holders(), memories.words & 255, len(memories)).astype(np.float64)
    return lengths


def _best_of_session(scores: Floats, sessions: NDArray[np.int64]) -> Floats:
    """The highest score of each memory's session; its own where it belongs to none. Sessions lie side by side."""
    starts = np.flatnonzero(np.append(True, (sessions[1:] != sessions[:-1]) | (sessions[1:] == 0)))
    best: Floats = np.repeat(np.maximum.reduceat(scores, starts), np.diff(starts, append=len(scores)))
    return best


def standing_kinds(memories: Memories) -> NDArray[np.int64]:
    """The kinds, without instructions and preferences that no longer hold.

    A withdrawal ends those before it, of its agent, person and speaker, that have all the roots that it is about: one
    that stands in error is recalled with its withdrawal, one that ends in error is lost. An instruction or a preference
    ends those of the opposite sense about the same roots in one order. A reset ends all their instructions. What is
    given again stands. Of very many only the newest count, and older ones are statements.
    """
    kinds = np.where(memories.kinds == Kind.REPLACEMENT, Kind.INSTRUCTION, memories.kinds)
    rows, last = memories.as_spoken(np.flatnonzero(kinds)), np.cumsum(memories.roots)
    kinds[rows[:-MOST_STATED]] = Kind.STATEMENT
    standing: dict[tuple[int, int], set[int]] = defaultdict(set)  # by owner and root
    about: dict[int, tuple[list[int], bool | None, set[int]]] = {}  # subject, whether it denies, all roots
    for row in rows[-MOST_STATED:].tolist():
        kind, owner = int(memories.kinds[row]), int(memories.owners[row])
        marked = memories.about[last[row] - memories.roots[row] : last[row]].tolist()
        subject, denies = [each >> 8 for each in marked if each & SUBJECT], any(each & DENIES for each in marked)
        ended: set[int] = set()
        if kind == Kind.RESET:
            ended = {other for other in standing[owner, EVERY] if kinds[other] == Kind.INSTRUCTION}
        elif subject:
            ended = set.intersection(*(standing[owner, each] for each in subject))
        if kind < Kind.WITHDRAWAL:
            ended = {other for other in ended if about[other][:2] == (subject, not denies)}
        for other in ended:
            kinds[other] = Kind.STATEMENT
            for each in about[other][2]:
                standing[owner, each].discard(other)
        if kinds[row] in (Kind.PREFERENCE, Kind.INSTRUCTION):
            sense = denies if kind < Kind.WITHDRAWAL else None  # a replacement's subject is what it ends
            about[row] = subject, sense, {EVERY, *(each >> 8 for each in marked)}
            for each in about[row][2]:
                standing[owner, each].add(row)
    return kinds


def _z_scores(values: Floats) -> Floats:
    """z-scores; 0 for NaN."""
    present = ~np.isnan(values)
    deviation = float(values[present].std())
    z: Floats = np.zeros(len(values))
    if deviation > 0:
        z[present] = (values[present] - values[present].mean()) / deviation
    return z
