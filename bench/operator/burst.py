"""A burst over a platform of all kinds: creations, spec edits and deletions at once, as fast as the API server takes
them.

The mix of 10,000 objects is that of a platform in use, where most things are finished, suspended or only configuration:
45 % RewardPolicies, 41 % TrainingJobs (suspended), 10 % ModelDeployments (suspended, with routing table, rights and
Service, no pods), 3 % LearningAgents (suspended; each creation asks for a ModelDeployment more), 1 % MemoryServices.
Of them 60 % are edited, 30 % created, 10 % deleted, in random order over 50 namespaces.

Reconciled: the status has observed the object's generation; for a deletion, the pass that finds the
object gone is done.
The *longest wait* is of any object, from the event that shows its change to the event of its status. A *neighbour*
is a namespace of its own in which one object changes each second while the flood comes from the others: with a plain
queue it would wait for everything that came before it.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.operator import world
from bench.operator.api import Api, many
from bench.operator.data_plane import data_plane
from bench.operator.observer import Observer
from bench.operator.process import Running, control_plane_cpu_seconds, running
from bench.operator.thousand import say, spread

from learnloop_operator.adapters.kinds import (
    LEARNING_AGENT,
    MEMORY_SERVICE,
    MODEL_DEPLOYMENT,
    OWN_KINDS,
    REWARD_POLICY,
    TRAINING_JOB,
    ResourceKind,
)

TEAMS = 50
PARALLEL = 32
FLOOR_WRITES = 2000
GONE = r'learnloop_reconcile_total\{kind="[^"]*",result="gone"\}'


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


async def measure(kubeconfig: Path, objects: int) -> dict[str, Any]:
    """All figures of a burst of `objects` on an empty API server."""
    draw = random.Random(4)
    async with Api(kubeconfig) as api, data_plane() as url:
        await many(api.create, world.namespaces(TEAMS + 1))
        before = [item for share in MIX for item in _objects(share, objects, "old", share.edited + share.deleted)]
        fresh = [item for share in MIX for item in _objects(share, objects, "new", share.created)]
        policies = [world.manifest(REWARD_POLICY, team, "reward", world.REWARD_POLICY) for team in range(TEAMS + 1)]
        await many(api.create, [*policies, *before], PARALLEL)
        async with Observer(api, OWN_KINDS) as observer:
            with running("ours", kubeconfig, url) as operator:
                settled = await observer.all_current(len(before) + len(policies)) - operator.started
                say(f"{len(before)} objects of all kinds from nothing: {settled:.1f} s")
                await _rest(operator)
                changes: list[Callable[[], Awaitable[Any]]] = [partial(api.create, item) for item in fresh]
                changes += [change for share in MIX for change in _changes(api, share, objects)]
                draw.shuffle(changes)
                server = control_plane_cpu_seconds(kubeconfig)
                figures = await _flood(api, observer, operator, changes, len(before) + len(policies) + len(fresh))
                figures["control_plane_cpu_s"] = control_plane_cpu_seconds(kubeconfig) - server
                figures["rss_mib"] = operator.memory_mib()[0]
            figures["before_from_nothing_s"] = settled
        return figures | await _floor(api, objects, len(changes) + figures["writes"])


def _objects(share: Share, objects: int, word: str, count: int) -> list[dict[str, Any]]:
    total = round(count * objects / 10_000)
    # The kind is in the name: a LearningAgent's ModelDeployment is called as the agent is.
    prefix = f"{share.kind.kind.lower()}-{word}"
    return [world.manifest(share.kind, i % TEAMS, f"{prefix}-{i:05d}", share.spec) for i in range(total)]


def _changes(api: Api, share: Share, objects: int) -> list[Callable[[], Awaitable[Any]]]:
    """Edits of the first of the old objects, deletions of the rest."""
    old = _objects(share, objects, "old", share.edited + share.deleted)
    edits = round(share.edited * objects / 10_000)
    changes: list[Callable[[], Awaitable[Any]]] = []
    for number, item in enumerate(old):
        where = (share.kind, item["metadata"]["namespace"], item["metadata"]["name"])
        edit = partial(api.merge, *where, share.edit(number))
        changes.append(edit if number < edits else partial(api.delete, *where))
    return changes


async def _flood(
    api: Api, observer: Observer, operator: Running, changes: list[Callable[[], Awaitable[Any]]], known: int
) -> dict[str, Any]:
    gone, writes, cpu = await operator.metric(GONE), await api.writes(), operator.cpu_seconds()
    deletions = sum(change.func.__name__ == "delete" for change in changes if isinstance(change, partial))
    observer.forget_waits()
    neighbour = asyncio.create_task(_neighbour(api))
    started = time.monotonic()
    sending = await many(lambda change: change(), changes, PARALLEL)
    say(f"{len(changes)} changes sent in {sending:.1f} s, {len(observer.behind)} objects are behind")
    neighbour.cancel()
    ended = await observer.all_current(known - deletions)
    while await operator.metric(GONE) - gone < deletions:
        await asyncio.sleep(0.1)
        ended = time.monotonic()
    waits = {name: seconds for name, seconds in observer.waits.items() if name[1] != world.namespace(TEAMS)}
    beside = [seconds for name, seconds in observer.waits.items() if name[1] == world.namespace(TEAMS)]
    figures = {
        "s": round(ended - started, 2),
        "sending_s": round(sending, 2),
        "longest_wait_s": round(max(waits.values()), 3),
        **spread("wait", list(waits.values())),
        "neighbour_longest_wait_s": round(max(beside, default=0.0), 3),
        "changes": len(changes),
        "writes": await api.writes() - writes - len(changes),
        "operator_cpu_s": operator.cpu_seconds() - cpu,
    }
    say(f"burst: {json.dumps(figures)}")
    return figures


async def _neighbour(api: Api) -> None:
    number = 0
    while True:
        number += 1
        await api.merge(REWARD_POLICY, world.namespace(TEAMS), "reward", world.reward_edit(number))
        await asyncio.sleep(1.0)


async def _rest(operator: Running) -> None:
    """Wait until the operator has nothing in its queue and has used no more than a tenth of a core for a second."""
    while True:
        before = operator.cpu_seconds()
        await asyncio.sleep(1.0)
        if operator.cpu_seconds() - before < 0.1 and await operator.metric("learnloop_queue_depth") == 0:
            return


async def _floor(api: Api, objects: int, writes: int) -> dict[str, float]:
    """The same number of writes by a bare client with nobody else there, extrapolated from a part of them."""
    share = MIX[0]
    some = _objects(share, objects, "old", share.edited)
    few = [some[i % len(some)] for i in range(min(FLOOR_WRITES, writes))]

    async def edit(numbered: tuple[int, dict[str, Any]]) -> None:
        number, item = numbered
        await api.merge(share.kind, item["metadata"]["namespace"], item["metadata"]["name"], share.edit(number + 7))

    seconds = await many(edit, list(enumerate(few)), PARALLEL)
    say(f"floor: {len(few)} bare writes in {seconds:.1f} s")
    return {"floor_s": round(seconds / len(few) * writes, 2), "floor_writes_measured": len(few)}
