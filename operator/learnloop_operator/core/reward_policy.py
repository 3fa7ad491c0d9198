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
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardWorld(Snapshot):
    """A RewardPolicy and how many agents use it."""

    spec: RewardPolicySpec
    agents: int = 0


def flaw(spec: RewardPolicySpec) -> str | None:
    """What is wrong with a policy, with field and fix. The API server refuses the same by CEL; old CRDs may not."""
    total = sum(component.weight for component in spec.components)
    if abs(total - 1.0) > TOLERANCE:
        weights = ", ".join(f"{component.name} {component.weight:g}" for component in spec.components)
        return f"spec.components: the weights add up to {total:g} ({weights}); make them add up to 1"
    names = [component.name for component in spec.components]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return f"spec.components: {twice!r} is there twice; rename one"
    for component in spec.components:
        if component.type == "outcome" and component.key is None:
            return f"spec.components[{component.name}].key is missing: say which outcome value counts"
    return None


def decide(world: RewardWorld) -> Plan:
    """Publish when the content is new (or it is time to repeat it), and say so."""
    if world.deleting:
        return Plan(status=world.status)
    problem = flaw(world.spec)
    if problem is not None:
        return Plan(status=_status(world, ready=False, reason="InvalidSpec", message=problem))
    body = world.spec.to_kube()
    number = revision(body, REVISION_DIGITS)
    new = world.status.get("revision") != number
    published = world.time if new else world.status.get("publishedAt") or world.time
    call = Call("PUT", f"/api/v1/rewards/policies/{world.name}/revisions/{number}", body)
    due = new or times.seconds_since(published, world.now) >= REPEAT_SECONDS
    state = _status(
        world,
        ready=True,
        reason="Published",
        message=f"revision {number} is in force",
        revision=number,
        published=published,
    )
    notice = Notice("Normal", "Published", f"revision {number} is in force for {world.agents} agents")
    return Plan(status=state, calls=(call,) if due else (), events=(notice,) if new else ())


def _status(
    world: RewardWorld, *, ready: bool, reason: str, message: str, revision: str | None = None, published: str = ""
) -> dict[str, object]:
    triplet = conditions.ready_triplet(
        ready=ready,
        progressing=False,
        stalled=not ready,
        reason=reason,
        message=message,
        generation=world.generation,
    )
    state = {
        **world.status,  # an invalid spec leaves the revision in force as it is
        "observedGeneration": world.generation,
        "phase": reason,
        "agents": world.agents,
        "conditions": conditions.merge(world.status.get("conditions") or (), triplet, world.time),
    }
    return state | ({"revision": revision, "publishedAt": published} if revision else {})
