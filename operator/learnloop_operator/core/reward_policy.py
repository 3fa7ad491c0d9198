"""RewardPolicy: publish each content of the spec once, under the hash of that content."""

from collections.abc import Mapping
from typing import Any, Literal

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import DryRunFigures, RewardSignals
from learnloop_operator.core import conditions, times
from learnloop_operator.core.content_digests import revision
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.core.snapshot import BaseSnapshot
from learnloop_operator.tuning.value_objects import named_value

REVISION_DIGITS = 12
SUSPECTED = "RewardHackingSuspected"
RETRY_SECONDS = 15.0
DRY_RUN_EPISODES = 20_000
REPEAT_SECONDS = 300.0
"""Published again this often, so that a data plane that lost its database learns the policy anew. Idempotent."""


@named_value
class RewardPolicySnapshot(BaseSnapshot):
    """A RewardPolicy, how many agents use it, and what the data plane says of its rewards (None: nothing new)."""

    spec: RewardPolicySpec
    agents: int = 0
    signals: RewardSignals | None = None
    dry_run: DryRunFigures | None = None
    """Fresh figures, where `needs_dry_run` asked for them and the data plane had the time."""


def decide(world: RewardPolicySnapshot) -> Plan:
    """Publish when the content is new (or it is time to repeat it), and say so.

    Weights and keys are checked by the model itself: a spec that got past the API server's rules never comes here.
    """
    if world.deleting:
        return Plan(status=world.status)
    if world.spec.dry_run:
        return _tried(world)
    body = content(world.spec)
    number = revision(body, REVISION_DIGITS)
    new = world.status.get("revision") != number
    published = world.time if new else world.status.get("publishedAt") or world.time
    call = Call("PUT", f"/api/v1/rewards/policies/{world.name}/revisions/{number}", body)
    due = new or times.seconds_since(published, world.now) >= REPEAT_SECONDS
    message = f"revision {number} is in force"
    triplet = conditions.ready_triplet(
        ready=True, progressing=False, stalled=False, reason="Published", message=message, generation=world.generation
    )
    suspicion = _suspicion(world, new=new)
    state = {
        "observedGeneration": world.generation,
        "phase": "Published",
        "revision": number,
        "publishedAt": published,
        "agents": world.agents,
        "conditions": conditions.merge(world.status.get("conditions") or (), [*triplet, suspicion], world.time),
    }
    events = []
    if new:
        events.append(Notice("Normal", "Published", f"revision {number} is in force for {world.agents} agents"))
    if suspicion["status"] == conditions.TRUE and suspicion["message"] != _before(world).get("message"):
        events.append(Notice("Warning", SUSPECTED, suspicion["message"]))
    return Plan(status=state, calls=(call,) if due else (), events=tuple(events))


def content_revision(spec: RewardPolicySpec) -> str:
    """The revision this content is published under."""
    return revision(content(spec), REVISION_DIGITS)


def content(spec: RewardPolicySpec) -> dict[str, Any]:
    """What is published: a dry-run and its later publication are one revision."""
    return {name: value for name, value in spec.to_kube().items() if name != "dryRun"}


def needs_dry_run(spec: RewardPolicySpec, status: Mapping[str, Any]) -> bool:
    """Whether this content still has to be tried."""
    return spec.dry_run and (status.get("dryRun") or {}).get("revision") != content_revision(spec)


def _tried(world: RewardPolicySnapshot) -> Plan:
    """Publish nothing; say how the content compares with what is in force."""
    number, in_force = content_revision(world.spec), world.status.get("revision")
    waits = needs_dry_run(world.spec, world.status)
    told = None if waits else world.status.get("dryRun")
    if waits and world.dry_run is not None:
        figures = world.dry_run
        told = {"revision": number, "trajectories": figures.trajectories, "message": figures.sentence}
        if figures.correlation is not None:
            told["correlation"] = figures.correlation
    stays = f"revision {in_force} stays in force" if in_force else "nothing is in force yet: set dryRun to false"
    result = told["message"] if told else "waiting for the data plane to compare"
    triplet = conditions.ready_triplet(
        ready=bool(in_force),
        progressing=told is None,
        stalled=False,
        reason="DryRun",
        message=f"dry-run of {number}: {result}; {stays}",
        generation=world.generation,
    )
    wanted = [*triplet, _suspicion(world, new=not in_force)]
    state = {
        "observedGeneration": world.generation,
        "phase": "DryRun",
        **{name: world.status[name] for name in ("revision", "publishedAt") if world.status.get(name)},
        "agents": world.agents,
        **({"dryRun": told} if told else {}),
        "conditions": conditions.merge(world.status.get("conditions") or (), wanted, world.time),
    }
    events = (Notice("Normal", "DryRun", result),) if told and waits else ()
    return Plan(status=state, events=events, requeue_after=None if told else RETRY_SECONDS)


def _suspicion(world: RewardPolicySnapshot, *, new: bool) -> Mapping[str, Any]:
    """The condition RewardHackingSuspected.

    Its sentence has figures of the moment: it is written when the finding appears or becomes another one, and stays
    while the finding does, so that a policy at rest costs no write.
    """
    before = {} if new else _before(world)
    found = world.signals
    if before and (found is None or before.get("reason") == found.reason):
        return {**before, "observedGeneration": world.generation}
    if found is None:
        message = "the data plane has not told yet"
        return conditions.condition(SUSPECTED, conditions.UNKNOWN, "NotLookedAt", message, world.generation)
    status: Literal["True", "False", "Unknown"] = conditions.UNKNOWN
    if found.suspected is not None:
        status = conditions.TRUE if found.suspected else conditions.FALSE
    worst = f"; look at trajectories {', '.join(found.worst)}" if found.worst else ""
    return conditions.condition(SUSPECTED, status, found.reason, found.sentence + worst, world.generation)


def _before(world: RewardPolicySnapshot) -> Mapping[str, Any]:
    return next((item for item in world.status.get("conditions") or () if item.get("type") == SUSPECTED), {})
