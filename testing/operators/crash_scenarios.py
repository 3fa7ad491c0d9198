"""The users' acts in the crash sweep, from the first model to the last, in both routing modes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from learnloop_api import names
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT
from testing.operators.api_access import patch
from testing.operators.crash_rig import NAME, STEPS, Rig, full_spec, model, revision

SEQUENTIAL = {"name": "success", "type": "success", "test": "sequential", "maxDrop": 0.3}

Act = Callable[[Rig], Awaitable[None]]
Condition = Callable[[Rig], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The user's acts, each after the status shows that what was before is done."""

    name: str
    chapters: tuple[tuple[Act, Condition], ...]
    spec: dict[str, Any] = field(default_factory=full_spec)
    blind: float = 0.0
    """Seconds after a restart in which Prometheus does not answer."""


def serves(number: int) -> Condition:
    """That model serves everybody, and nothing else is left."""
    return lambda rig: (
        rig.ledger.status.get("phase") == "Healthy"
        and rig.ledger.status["stable"]["uri"] == model(number)["uri"]
        and len(rig.ledger.replicas) == 1
    )


def phase(name: str, arms: int = 0) -> Condition:
    """The status says this phase; with `arms`, so many Deployments are left."""
    return lambda rig: rig.ledger.status.get("phase") == name and (not arms or len(rig.ledger.replicas) == arms)


def weight(percent: int) -> Condition:
    """The canary has this weight."""
    return lambda rig: rig.ledger.status.get("weight") == percent


def wishes(number: int, quality: float) -> Act:
    """The user asks for a model that is so good."""
    return lambda rig: rig.wish(number, quality)


async def nothing(_: Rig) -> None:
    """The user has applied the object, and waits."""


async def turns_bad(rig: Rig) -> None:
    """The model that was just promoted fails from now on."""
    rig.traffic.quality[rig.ledger.status["stable"]["revision"]] = 0.0


def says(verb: str, arm: str) -> Act:
    """A person sets the verb's annotation, for the revision of that arm."""

    async def act(rig: Rig) -> None:
        note = {names.verb_annotation(verb): rig.ledger.status[arm]["revision"]}
        await patch(rig.user, MODEL_DEPLOYMENT, rig.namespace, NAME, {"metadata": {"annotations": note}})

    return act


async def play(rig: Rig) -> None:
    """The user has applied an experiment: its first arm is better than stable and the other one."""
    rig.traffic.quality |= {revision(0): 0.6, revision(1): 0.95, revision(2): 0.6}


def steps(*listed: dict[str, Any]) -> dict[str, Any]:
    """A rollout in these steps."""
    return {"rollout": {"steps": [*listed], "keepForSeconds": 30}}


FIRST = (nothing, phase("Healthy"))
ENDS_ROLLED_BACK = phase("RolledBack", 1)
PAUSED = steps(STEPS[0], {**STEPS[1], "pause": True}, STEPS[3])
SHADOWED = steps({"weight": 0, "shadow": {"minRequests": 60, "minAgreement": 0.9}}, STEPS[1], STEPS[3])
EXPERIMENT = {
    "arms": [{"name": "best", "weight": 30, **model(1)}, {"name": "other", "weight": 20, **model(2)}],
    "minEpisodes": 50,
    "onWinner": "promote",
}
ONLY_ERRORS = {"intervalSeconds": 5, "metrics": [{"name": "errors", "type": "errors", "max": 0.5}]}
BY_SEQUENTIAL_TEST = {"intervalSeconds": 5, "metrics": [SEQUENTIAL]}
WITH_A_BOUND = {"intervalSeconds": 5, "metrics": [{"name": "success", "type": "success", "minRatio": 0.9, "min": 0.5}]}
"""A promoted model is watched by bounds: a ratio has nothing to compare it with any more."""
PROMOTED = (FIRST, (wishes(1, 1.0), serves(1)))
ROLLED_BACK = (FIRST, (wishes(1, 0.2), ENDS_ROLLED_BACK))
SWAPPED_BACK = (FIRST, (wishes(1, 1.0), phase("Guarding")), (turns_bad, ENDS_ROLLED_BACK))
APPROVED = (FIRST, (wishes(1, 1.0), phase("Paused")), (says("approve", "canary"), serves(1)))
UNDONE = (FIRST, (wishes(1, 1.0), phase("Guarding")), (says("undo", "stable"), ENDS_ROLLED_BACK))
BY_HAND = (FIRST, (wishes(1, 1.0), weight(10)), (says("promote", "canary"), serves(1)))
RACED = ((play, serves(1)),)
SCENARIOS = (
    Scenario("promoted", PROMOTED),
    Scenario("rolled back", ROLLED_BACK),
    Scenario("promoted by a sequential test", PROMOTED, full_spec(analysis=BY_SEQUENTIAL_TEST)),
    Scenario("swapped back while guarding", SWAPPED_BACK, full_spec(analysis=WITH_A_BOUND)),
    Scenario("superseded", (FIRST, (wishes(1, 1.0), weight(25)), (wishes(2, 1.0), serves(2)))),
    Scenario("aborted", (FIRST, (wishes(1, 1.0), weight(50)), (says("abort", "canary"), ENDS_ROLLED_BACK))),
    Scenario("approved", APPROVED, full_spec(**PAUSED)),
    Scenario("undone", UNDONE),
    Scenario("promoted by hand", BY_HAND),
    Scenario("in shadow first", PROMOTED, full_spec(**SHADOWED)),
    Scenario("through an experiment", RACED, full_spec(experiment=EXPERIMENT, analysis=ONLY_ERRORS)),
    Scenario("by a gateway, promoted", PROMOTED, full_spec("gateway")),
    Scenario("by a gateway, rolled back", ROLLED_BACK, full_spec("gateway")),
    Scenario("by a gateway, swapped back while guarding", SWAPPED_BACK, full_spec("gateway", analysis=WITH_A_BOUND)),
    Scenario(
        "by a gateway, through an experiment",
        RACED,
        full_spec("gateway", experiment=EXPERIMENT, analysis=ONLY_ERRORS),
        blind=15.0,
    ),
)


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises KeyError: there is none."""
    return {item.name: item for item in SCENARIOS}[name]
