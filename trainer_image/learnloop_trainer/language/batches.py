"""Episodes as padded tensors, whole episodes together, no batch above a budget of tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from learnloop_trainer.language.rows import Episode, Pair, Row


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
    found: list[Sequence[Pair]] = []
    begin = 0
    for end in range(1, len(ordered) + 1):
        rows = sum(len(pair.chosen.rows) + len(pair.rejected.rows) for pair in ordered[begin : end + 1])
        if end == len(ordered) or rows * _longest_of(ordered[end]) > budget:
            found.append(ordered[begin:end])
            begin = end
    return found


def _longest_of(pair: Pair) -> int:
    return max(_longest(pair.chosen.rows), _longest(pair.rejected.rows))


def _longest(rows: Sequence[Row]) -> int:
    return max(len(row.ids) for row in rows)
