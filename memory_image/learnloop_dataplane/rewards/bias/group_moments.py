"""What groups of episodes earned, summed up in one pass: some kilobytes a group, however many episodes there are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import orjson

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_common.reward_rules.components import Episode, evaluate
from learnloop_dataplane.rewards.rank_statistics import Floats

Outcome = Literal["success", "failure", "unsaid"]
MOST_GROUPS = 1000
"""Of a key at a time. Where there are more, those that are too small to be compared make room: a thousand made-up names
must not hide the groups there are. Episodes of what finds no room are only counted."""
TOO_SMALL = 10
"""Episodes that no group is compared below: the least that `minimumEpisodes` may be."""
MOST_CHARACTERS = 64
EXAMPLES = 25
"""Episodes of a group whose ids are kept."""


class Moments:
    """Number, means and sums of squared deviations of vectors (B. P. Welford, Technometrics 4(3), 1962)."""

    __slots__ = ("count", "m2", "mean")

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.m2 = 0, np.zeros(size), np.zeros(size)

    def add(self, values: Floats) -> None:
        """One more vector, shape (size,)."""
        self.count += 1
        delta = values - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (values - self.mean)


class EpisodeGroup:
    """One value of a key: its episodes by their outcome, and the ids of the newest."""

    def __init__(self) -> None:
        self.by_outcome: dict[Outcome, Moments] = {}
        self.examples: list[str] = []

    @property
    def count(self) -> int:
        """Its episodes."""
        return sum(moments.count for moments in self.by_outcome.values())

    def at(self, outcome: Outcome) -> int:
        """Its episodes with this outcome."""
        found = self.by_outcome.get(outcome)
        return found.count if found else 0


class Tally:
    """Of one policy, by key and group. The first number of a vector is the reward before normalisation, no more than a
    broken constraint allows; the others are what each component adds to it."""

    def __init__(self, spec: RewardPolicySpec, keys: Sequence[str]) -> None:
        self.spec = spec
        self.groups: dict[str, dict[str, EpisodeGroup]] = {key: {} for key in keys}
        self.beyond: dict[str, int] = dict.fromkeys(keys, 0)
        self.forgotten: dict[str, int] = dict.fromkeys(keys, 0)
        self.episodes = 0
        self._weights = {component.name: component.weight for component in spec.components}
        self._caps = {constraint.name: constraint.reward_at_most for constraint in spec.constraints}

    @property
    def size(self) -> int:
        """Length of a vector."""
        return 1 + len(self._weights)

    def add(self, row: Mapping[str, Any], episode: Episode) -> None:
        """One episode, and the row with `labels`, `task_type` and `told` (the metadata of its result) it came from."""
        self.episodes += 1
        named = dict(group_names(row, self.groups))
        if not named:
            return
        values = np.array(self._values(episode))
        outcome: Outcome = "unsaid" if episode.success is None else "success" if episode.success else "failure"
        for key, name in named.items():
            known = self.groups[key]
            group = known.get(name)
            if group is None:
                if len(known) >= MOST_GROUPS and not self._make_room(key):
                    self.beyond[key] += 1
                    continue
                group = known[name] = EpisodeGroup()
            if outcome not in group.by_outcome:
                group.by_outcome[outcome] = Moments(self.size)
            group.by_outcome[outcome].add(values)
            if len(group.examples) < EXAMPLES:
                group.examples.append(row["trajectory_id"])

    def _make_room(self, key: str) -> bool:
        """Forget the smaller half of a key's groups, those too small to be compared; False where none is so small."""
        known = self.groups[key]
        smallest = sorted(known, key=lambda name: known[name].count)[: MOST_GROUPS // 2]
        small = [name for name in smallest if known[name].count < TOO_SMALL]
        for name in small:
            self.beyond[key] += known.pop(name).count
        self.forgotten[key] += len(small)
        return bool(small)

    def _values(self, episode: Episode) -> list[float]:
        worth = evaluate(self.spec, episode)
        reward = min([worth.raw, *(self._caps[name] for name in worth.broken)])
        return [reward, *(weight * worth.components[name] for name, weight in self._weights.items())]


def group_names(row: Mapping[str, Any], keys: Sequence[str] | Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each key with the group that the episode belongs to; keys that it says nothing of are left out."""
    labels = told = None
    for key in keys:
        if key == "taskType":
            value: Any = row["task_type"]
        elif key.startswith("result."):
            told = orjson.loads(row["told"] or "{}") if told is None else told
            value = told.get(key.removeprefix("result.metadata.")) if isinstance(told, dict) else None
        else:
            labels = orjson.loads(row["labels"] or "{}") if labels is None else labels
            value = labels.get(key.removeprefix("metadata."))
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float) and value != "":
            yield key, "".join(c if c.isprintable() else " " for c in str(value)[:MOST_CHARACTERS])
