"""RewardPolicy: publish each content of the spec once, under the hash of that content."""

from dataclasses import dataclass

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_operator.core import conditions, times
from learnloop_operator.core.digests import revision
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.core.snapshot import Snapshot

REVISION_DIGITS = 12
REPEAT_SECONDS = 300.0
"""Published again this often, so that a data plane that lost its database learns the policy anew. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardWorld(Snapshot):
    """A RewardPolicy and how many agents use it."""

    spec: RewardPolicySpec
    agents: int = 0


def decide(world: RewardWorld) -> Plan:
    """Publish when the content is new (or it is time to repeat it), and say so.

    Weights and keys are checked by the model itself: a spec that got past the API server's rules never comes here.
    """
    if world.deleting:
        return Plan(status=world.status)
    body = world.spec.to_kube()
    number = revision(body, REVISION_DIGITS)
    new = world.status.get("revision") != number
    published = world.time if new else world.status.get("publishedAt") or world.time
    call = Call("PUT", f"/api/v1/rewards/policies/{world.name}/revisions/{number}", body)
    due = new or times.seconds_since(published, world.now) >= REPEAT_SECONDS
    message = f"revision {number} is in force"
    triplet = conditions.ready_triplet(
        ready=True, progressing=False, stalled=False, reason="Published", message=message, generation=world.generation
    )
    state = {
        "observedGeneration": world.generation,
        "phase": "Published",
        "revision": number,
        "publishedAt": published,
        "agents": world.agents,
        "conditions": conditions.merge(world.status.get("conditions") or (), triplet, world.time),
    }
    notice = Notice("Normal", "Published", f"revision {number} is in force for {world.agents} agents")
    return Plan(status=state, calls=(call,) if due else (), events=(notice,) if new else ())
