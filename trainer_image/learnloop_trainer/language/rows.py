"""Conversations as rows of tokens, and rows as batches.

A row is one sequence of token ids as the model saw and continued it. Two turns of an episode share a row only where the
later prompt begins with exactly the ids of the earlier prompt and answer; else the later turn begins a new row, and the
break is counted. Text is never compared: a template that writes a tool call again gives other ids for the same text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Numbers = NDArray[np.float32]
Arrays = dict[str, NDArray[np.generic]]
OF_ROWS = {"ids": np.int64, "sampled": np.bool_, "log_prob": np.float32, "temperature": np.float32}
OF_EPISODES = {"reward": np.float64, "group": np.int64, "truncated": np.bool_, "broken": np.int64, "age": np.int64}
"""Types of what a checkpoint holds of each token, and of each episode."""


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


OTHERS = -1
"""Group of the chosen answer of a pair from another agent's log than the run's own."""


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
            return f"a token is not one of this model's {self.vocabulary}"
        if any(len(row.ids) > self.context for row in episode.rows):
            return f"longer than this run's context of {self.context} tokens"
        return ""


ANY = Bounds()


def rows_of(turns: Sequence[Sampled]) -> tuple[list[Row], int]:
    """The rows of an episode's turns in their order, and how many turns did not continue the one before."""
    rows: list[tuple[list[int], list[bool], list[float], list[float]]] = []
    broken = 0
    for turn in turns:
        before = rows[-1][0] if rows else []
        if not rows or len(turn.prompt_ids) <= len(before) or list(turn.prompt_ids[: len(before)]) != before:
            broken += bool(rows)
            rows.append(([], [], [], []))
        ids, sampled, log_prob, temperature = rows[-1]
        prompt, drawn = list(turn.prompt_ids[len(ids) :]), list(turn.sampled_ids)
        ids += prompt + drawn
        sampled += [False] * len(prompt) + [True] * len(drawn)
        log_prob += [0.0] * len(prompt) + list(turn.log_probs)
        temperature += [1.0] * len(prompt) + [turn.temperature] * len(drawn)
    return [Row(*map(np.asarray, row, OF_ROWS.values())) for row in rows], broken


def to_arrays(episodes: Sequence[Episode]) -> Arrays:
    """Episodes as plain arrays, for a checkpoint; `of_arrays` is the inverse, less `values`."""
    rows = [row for episode in episodes for row in episode.rows]
    success = [-1 if episode.success is None else int(episode.success) for episode in episodes]
    arrays: Arrays = {
        name: np.concatenate([np.empty(0, kind), *(getattr(row, name) for row in rows)])
        for name, kind in OF_ROWS.items()
    }
    arrays |= {
        name: np.asarray([getattr(episode, name) for episode in episodes], dtype=kind)
        for name, kind in OF_EPISODES.items()
    }
    return arrays | {
        "ids": arrays["ids"].astype(np.int32),
        "tokens": np.asarray([len(row.ids) for row in rows], dtype=np.int64),
        "rows": np.asarray([len(episode.rows) for episode in episodes], dtype=np.int64),
        "success": np.asarray(success, dtype=np.int8),
    }


def of_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> list[Episode]:
    """See `to_arrays`; raises KeyError where an array is missing."""
    ends = np.cumsum(arrays["tokens"].astype(np.int64))[:-1]
    parts: list[list[NDArray[Any]]] = [np.split(arrays[name].astype(kind), ends) for name, kind in OF_ROWS.items()]
    rows = iter([Row(*fields) for fields in zip(*parts, strict=True)])
    columns = [arrays[name].tolist() for name in ("rows", "success", *OF_EPISODES)]
    return [
        Episode(
            list(islice(rows, count)),
            success=None if success < 0 else bool(success),
            **dict(zip(OF_EPISODES, rest, strict=True)),
        )
        for count, success, *rest in zip(*columns, strict=True)
    ]


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
