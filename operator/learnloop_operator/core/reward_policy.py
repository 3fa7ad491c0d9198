"""RewardPolicy: publish each content of the spec once, under the hash of that content."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import RewardSignals
from learnloop_operator.core import conditions, times
from learnloop_operator.core.digests import revision
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.core.snapshot import Snapshot

REVISION_DIGITS = 12
SUSPECTED = "RewardHackingSuspected"
REPEAT_SECONDS = 300.0
"""Published again this often, so that a data plane that lost its database learns the policy anew. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardWorld(Snapshot):
    """A RewardPolicy, how many agents use it, and what the data plane says of its rewards (None: nothing new)."""

    spec: RewardPolicySpec
    agents: int = 0
    signals: RewardSignals | None = None


def decide(world: RewardWorld) -> Plan:
    """Publish when the content is new (or it is time to repeat it), and say so.

    Weights and keys are checked by the model itself: a spec that got past the API server's rules never comes here.
    """
    if world.deleting:
        return Plan(status=world.status)
    body = world.spec.to_kube()
    number = content_revision(world.spec)
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
    return revision(spec.to_kube(), REVISION_DIGITS)


def _suspicion(world: RewardWorld, *, new: bool) -> Mapping[str, Any]:
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


def _before(world: RewardWorld) -> Mapping[str, Any]:
    return next((item for item in world.status.get("conditions") or () if item.get("type") == SUSPECTED), {})
