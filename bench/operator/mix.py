"""What a burst is made of: creations, spec edits and deletions of all kinds, as of a platform in use.

Most things are finished, suspended or only configuration: 45 % RewardPolicies, 41 % TrainingJobs (suspended), 10 %
ModelDeployments (suspended, with routing table, rights and Service, no pods), 3 % LearningAgents (suspended; each
creation asks for a ModelDeployment more), 1 % MemoryServices. Of them 60 % are edited, 30 % created, 10 % deleted, in
random order over 50 namespaces.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.operator import world
from bench.operator.api import Api
from learnloop_operator.kube.kinds import (
    LEARNING_AGENT,
    MEMORY_SERVICE,
    MODEL_DEPLOYMENT,
    REWARD_POLICY,
    TRAINING_JOB,
    ResourceKind,
)

TEAMS = 50
QUIET = world.namespace(TEAMS)
"""The namespace of the neighbour, whom the burst does not touch."""

Manifest = dict[str, Any]
Change = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Share:
    """Objects of one kind, in ten-thousandths of the burst."""

    kind: ResourceKind
    edited: int
    created: int
    deleted: int
    spec: dict[str, Any]
    edit: Callable[[int], dict[str, Any]]


MIX = (
    Share(REWARD_POLICY, 2800, 1200, 500, world.REWARD_POLICY, world.reward_edit),
    Share(TRAINING_JOB, 2400, 1200, 500, world.training_job(), world.training_edit),
    Share(MODEL_DEPLOYMENT, 700, 300, 0, world.model_deployment(suspend=True), world.edit),
    Share(LEARNING_AGENT, 100, 200, 0, world.learning_agent("reward"), world.agent_edit),
    Share(MEMORY_SERVICE, 0, 100, 0, world.memory_service(), world.edit),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """One round of the burst, in random order."""

    changes: Sequence[Change]
    created: int
    deleted: int


class Mix:
    """Two rounds over the same objects: the second edits them again and deletes what the first created."""

    def __init__(self, objects: int) -> None:
        self._objects, self._draw = objects, random.Random(4)

    def before(self) -> list[Manifest]:
        """What there is before the first round."""
        old = [item for share in MIX for item in self._named(share, "old", share.edited + share.deleted)]
        return [
            *(world.manifest(REWARD_POLICY, team, "reward", world.REWARD_POLICY) for team in range(TEAMS + 1)),
            *old,
        ]

    def changes(self, api: Api, number: int) -> Changes:
        """The changes of round `number`, 0 or 1."""
        fresh = [item for share in MIX for item in self._named(share, ("new", "late")[number], share.created)]
        edits = [edit for share in MIX for edit in self._edits(api, share, number)]
        doomed = [item for share in MIX for item in self._doomed(share, number)]
        deletions = [partial(api.delete, *_where(item)) for item in doomed]
        changes: list[Change] = [*(partial(api.create, item) for item in fresh), *edits, *deletions]
        self._draw.shuffle(changes)
        return Changes(changes, len(fresh), len(doomed))

    def share(self, kind: ResourceKind) -> list[Manifest]:
        """The objects of a kind that are edited."""
        return [item for share in MIX if share.kind is kind for item in self._named(share, "old", share.edited)]

    def _doomed(self, share: Share, number: int) -> list[Manifest]:
        if number == 1:
            return self._named(share, "new", share.deleted)
        return self._named(share, "old", share.edited + share.deleted)[self._count(share.edited) :]

    def _edits(self, api: Api, share: Share, number: int) -> list[Change]:
        items = self._named(share, "old", share.edited)
        return [partial(api.merge, *_where(item), share.edit(i + number)) for i, item in enumerate(items)]

    def _named(self, share: Share, word: str, count: int) -> list[Manifest]:
        # The kind is in the name: a LearningAgent's ModelDeployment is called as the agent is.
        prefix = f"{share.kind.kind.lower()}-{word}"
        total = self._count(count)
        return [world.manifest(share.kind, i % TEAMS, f"{prefix}-{i:05d}", share.spec) for i in range(total)]

    def _count(self, share: int) -> int:
        return round(share * self._objects / 10_000)


def _where(item: Manifest) -> tuple[ResourceKind, str, str]:
    kind = next(share.kind for share in MIX if share.kind.kind == item["kind"])
    return kind, item["metadata"]["namespace"], item["metadata"]["name"]
