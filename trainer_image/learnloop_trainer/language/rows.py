"""Conversations as rows of tokens, and rows as batches.

A row is one sequence of token ids as the model saw and continued it. Two turns of an episode share a row only where the
later prompt begins with exactly the ids of the earlier prompt and answer; else the later turn begins a new row, and the
break is counted. Text is never compared: a template that writes a tool call again gives other ids for the same text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Numbers = NDArray[np.float32]
Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One turn: what the model was given, and what it drew.

    Attributes:
        prompt_ids: all tokens the model saw.
        sampled_ids: the tokens it drew, the end of the turn included where it was drawn.
        log_probs: natural logarithms of the probabilities they were drawn with, one for each.
        temperature: logits were divided by it before the draw; above 0.
        complete: whether the end of the turn was drawn, not cut off by a limit.
    """

    prompt_ids: Sequence[int]
    sampled_ids: Sequence[int]
    log_probs: Sequence[float]
    temperature: float = 1.0
    complete: bool = True

    def __post_init__(self) -> None:
        """Refuse a turn that cannot be learned from; raises ValueError."""
        if not self.prompt_ids or not self.sampled_ids:
            raise ValueError("a turn needs at least one prompt id and one sampled id")
        if len(self.sampled_ids) != len(self.log_probs):
            raise ValueError(f"{len(self.sampled_ids)} sampled ids have {len(self.log_probs)} log-probabilities")
        if not self.temperature > 0:
            raise ValueError(f"temperature {self.temperature} draws nothing: record turns sampled above 0")


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of tokens; all arrays are [tokens].

    Attributes:
        ids: the token ids.
        sampled: where the model drew the token itself; all else was said by the world and is never learned.
        log_prob: of the behaviour policy where `sampled`, else 0.
        temperature: of the draw where `sampled`, else 1.
    """

    ids: Ids
    sampled: NDArray[np.bool_]
    log_prob: Numbers
    temperature: Numbers


@dataclass(frozen=True, slots=True)
class Episode:
    """One conversation to learn from.

    Attributes:
        rows: in the order they were sampled; several where the history was broken.
        reward: of the whole conversation.
        group: conversations with the same number began alike and are compared with one another.
        success: whether the task was solved; None where that is unknown.
        truncated: some turn was cut off by a limit.
        broken: turns whose prompt did not continue the one before.
        age: how many policies were newer than the one that spoke.
        values: named measurements for curves, e.g. turns.
    """

    rows: Sequence[Row]
    reward: float
    group: int
    success: bool | None = None
    truncated: bool = False
    broken: int = 0
    age: int = 0
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def sampled(self) -> int:
        return int(sum(int(row.sampled.sum()) for row in self.rows))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to the same question, as episodes: one was preferred."""

    chosen: Episode
    rejected: Episode


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a model: rows of `context` tokens at most, of which each is below `vocabulary`."""

    context: int = 2**31
    vocabulary: int = 2**31

    def refuse(self, episode: Episode) -> str:
        if any(int(row.ids.max()) >= self.vocabulary for row in episode.rows):
            return f"a token is none of this model's {self.vocabulary}"
        if any(len(row.ids) > self.context for row in episode.rows):
            return f"longer than this run's context of {self.context} tokens"
        return ""


ANY = Bounds()


def rows_of(turns: Sequence[Sampled]) -> tuple[list[Row], int]:
    """The rows of an episode's turns in their order, and how many turns did not continue the one before."""
    rows: list[_Growing] = []
    broken = 0
    for turn in turns:
        if not rows or not rows[-1].continued_by(turn.prompt_ids):
            broken += bool(rows)
            rows.append(_Growing())
        rows[-1].add(turn)
    return [row.done() for row in rows], broken


class _Growing:
    """A row to which turns are added."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._sampled: list[bool] = []
        self._log_prob: list[float] = []
        self._temperature: list[float] = []

    def continued_by(self, prompt: Sequence[int]) -> bool:
        return len(prompt) > len(self._ids) and list(prompt[: len(self._ids)]) == self._ids

    def add(self, turn: Sampled) -> None:
        prompt = list(turn.prompt_ids[len(self._ids) :])
        drawn = list(turn.sampled_ids)
        self._ids += prompt + drawn
        self._sampled += [False] * len(prompt) + [True] * len(drawn)
        self._log_prob += [0.0] * len(prompt) + list(turn.log_probs)
        self._temperature += [1.0] * len(prompt) + [turn.temperature] * len(drawn)

    def done(self) -> Row:
        return Row(
            np.asarray(self._ids, dtype=np.int64),
            np.asarray(self._sampled, dtype=np.bool_),
            np.asarray(self._log_prob, dtype=np.float32),
            np.asarray(self._temperature, dtype=np.float32),
        )


def to_arrays(episodes: Sequence[Episode]) -> Arrays:
    """Episodes as plain arrays, for a checkpoint; `of_arrays` is the inverse, less `values`."""
    rows = [row for episode in episodes for row in episode.rows]
    return {
        "ids": _joined([row.ids.astype(np.int32) for row in rows], np.int32),
        "sampled": _joined([row.sampled for row in rows], np.bool_),
        "log_prob": _joined([row.log_prob for row in rows], np.float32),
        "temperature": _joined([row.temperature for row in rows], np.float32),
        "tokens": np.asarray([len(row.ids) for row in rows], dtype=np.int64),
        "rows": np.asarray([len(episode.rows) for episode in episodes], dtype=np.int64),
        "reward": np.asarray([episode.reward for episode in episodes], dtype=np.float64),
        "group": np.asarray([episode.group for episode in episodes], dtype=np.int64),
        "success": np.asarray(
            [-1 if episode.success is None else int(episode.success) for episode in episodes], dtype=np.int8
        ),
        "truncated": np.asarray([episode.truncated for episode in episodes], dtype=np.bool_),
        "broken": np.asarray([episode.broken for episode in episodes], dtype=np.int64),
        "age": np.asarray([episode.age for episode in episodes], dtype=np.int64),
    }


def of_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> list[Episode]:
    """See `to_arrays`; raises KeyError where an array is missing."""
    ends = np.cumsum(arrays["tokens"].astype(np.int64))[:-1]
    parts = [np.split(arrays[name], ends) for name in ("ids", "sampled", "log_prob", "temperature")]
    rows = [
        Row(ids.astype(np.int64), sampled.astype(np.bool_), log_prob.astype(np.float32), heat.astype(np.float32))
        for ids, sampled, log_prob, heat in zip(*parts, strict=True)
    ]
    episodes, first = list[Episode](), 0
    for number, count in enumerate(arrays["rows"].tolist()):
        success = int(arrays["success"][number])
        episodes.append(
            Episode(
                rows[first : first + count],
                float(arrays["reward"][number]),
                int(arrays["group"][number]),
                None if success < 0 else bool(success),
                bool(arrays["truncated"][number]),
                int(arrays["broken"][number]),
                int(arrays["age"][number]),
            )
        )
        first += count
    return episodes


def _joined(parts: list[NDArray[np.generic]], kind: type[np.generic]) -> NDArray[np.generic]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows [rows, longest], padded on the right, and their n sampled tokens.

    Attributes:
        ids: int64 [rows, longest].
        attention: int64 [rows, longest], 1 at tokens, 0 at padding.
        row: int64 [n], where the sampled token stands.
        column: int64 [n], likewise; at least 1, for the first token of a row is never sampled.
        behaviour: float32 [n], log-probability of the policy that drew it.
        temperature: float32 [n], by which its logits were divided.
        episode: int64 [n], number of its episode in this batch.
        members: which episodes of the whole update these are.
    """

    ids: torch.Tensor
    attention: torch.Tensor
    row: torch.Tensor
    column: torch.Tensor
    behaviour: torch.Tensor
    temperature: torch.Tensor
    episode: torch.Tensor
    members: Sequence[int]


def make(episodes: Sequence[Episode], members: Sequence[int], device: torch.device) -> TokenBatch:
    """One batch of the episodes with these numbers; padding is id 0, which attention hides."""
    rows = [(number, row) for number, member in enumerate(members) for row in episodes[member].rows]
    longest = max(len(row.ids) for _, row in rows)
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    attention = np.zeros((len(rows), longest), dtype=np.int64)
    sampled = np.zeros((len(rows), longest), dtype=np.bool_)
    for place, (_, row) in enumerate(rows):
        ids[place, : len(row.ids)], attention[place, : len(row.ids)] = row.ids, 1
        sampled[place, : len(row.ids)] = row.sampled
    where = np.nonzero(sampled)
    owner = np.asarray([number for number, _ in rows], dtype=np.int64)[where[0]]
    arrays = (
        ids,
        attention,
        *where,
        np.concatenate([row.log_prob[row.sampled] for _, row in rows]),
        np.concatenate([row.temperature[row.sampled] for _, row in rows]),
        owner,
    )
    tensors = [torch.from_numpy(array).to(device) for array in arrays]
    return TokenBatch(*tensors[:7], members)  # type: ignore[arg-type, call-arg]


def batches(
    episodes: Sequence[Episode], members: Sequence[int], budget: int, device: torch.device
) -> Iterator[TokenBatch]:
    """The episodes `members` in batches of at most `budget` tokens, padding included; a longer episode is alone.

    Episodes of like length come together, so that little is padding. The order of the sum of their losses changes only
    the last bits of a result.
    """
    ordered = sorted(members, key=lambda member: (_longest(episodes[member].rows), member))
    waiting: list[int] = []
    rows = 0
    for member in ordered:
        count, longest = len(episodes[member].rows), _longest(episodes[member].rows)
        if waiting and (rows + count) * longest > budget:
            yield make(episodes, waiting, device)
            waiting, rows = [], 0
        waiting.append(member)
        rows += count
    if waiting:
        yield make(episodes, waiting, device)


def batched_pairs(pairs: Sequence[Pair], budget: int) -> list[Sequence[Pair]]:
    """Pairs of like length together, at most `budget` tokens with padding; at least one pair each."""
    ordered = sorted(pairs, key=_longest_of)
    groups: list[Sequence[Pair]] = []
    begin = 0
    for end in range(1, len(ordered) + 1):
        rows = sum(len(pair.chosen.rows) + len(pair.rejected.rows) for pair in ordered[begin : end + 1])
        if end == len(ordered) or rows * _longest_of(ordered[end]) > budget:
            groups.append(ordered[begin:end])
            begin = end
    return groups


def _longest_of(pair: Pair) -> int:
    return max(_longest(pair.chosen.rows), _longest(pair.rejected.rows))


def _longest(rows: Sequence[Row]) -> int:
    return max(len(row.ids) for row in rows)
