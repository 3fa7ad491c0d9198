"""The problems that keep an agent from learning, in the order in which they are looked for."""

from dataclasses import dataclass

from learnloop_api.kinds.base import PodOptions
from learnloop_operator.agents.agent_snapshot import AgentSnapshot
from learnloop_operator.agents.model_to_serve import KINDS, UNIFORM, spaces, task_flaw, world_of
from learnloop_operator.core import allowed_pods, artifacts


@dataclass(frozen=True, slots=True)
class Problem:
    """`waits`: it mends itself when another object gets ready."""

    reason: str
    sentence: str
    waits: bool = False


def first_problem(snapshot: AgentSnapshot) -> Problem | None:
    """Of what the spec names, in the order in which it is needed."""
    return (
        _pods_not_allowed(snapshot)
        or _reward_policy(snapshot)
        or _memory(snapshot)
        or _environment(snapshot)
        or _spaces(snapshot)
        or _pin(snapshot)
    )


def _pods_not_allowed(snapshot: AgentSnapshot) -> Problem | None:
    """Options of pods that the platform does not allow: of the actors, of training and of the policy servers."""
    spec = snapshot.spec
    pods = {"spec.deployment.template.serving.pod": spec.deployment.template.serving.pod}
    if spec.training is not None:
        pods["spec.training.template.pod"] = spec.training.template.pod
    if spec.task.environment is not None:
        pods["spec.task.environment.actors.pod"] = spec.task.environment.actors.pod
    if (language := spec.deployment.template.serving.language) is not None:
        pods["spec.deployment.template.serving.language.server"] = PodOptions(image=language.server.image)
    result = [allowed_pods.forbidden(options, field, snapshot.defaults.pods) for field, options in pods.items()]
    result.append(
        allowed_pods.forbidden_base(spec.task.language_model, "spec.task.languageModel", snapshot.defaults.pods)
    )
    return next((Problem(allowed_pods.REASON, stray) for stray in result if stray), None)


def _pin(snapshot: AgentSnapshot) -> Problem | None:
    pin = snapshot.spec.deployment.model
    stray = artifacts.foreign(pin.uri, snapshot.namespace) if pin and pin.uri else ""
    return Problem("ModelOfAnotherNamespace", f"spec.deployment.model.uri: {stray}") if stray else None


def _reward_policy(snapshot: AgentSnapshot) -> Problem | None:
    name = snapshot.spec.reward_policy_ref.name
    if not snapshot.policy.exists:
        text = f"spec.rewardPolicyRef.name: no RewardPolicy {name!r} in namespace {snapshot.namespace}; create it"
        return Problem("RewardPolicyMissing", text)
    if snapshot.policy.revision is None:
        return Problem("RewardPolicyNotPublished", f"RewardPolicy {name!r} has no published revision yet", waits=True)
    return None


def _memory(snapshot: AgentSnapshot) -> Problem | None:
    reference = snapshot.spec.memory.service_ref
    if reference is None or snapshot.memory is None:
        return None
    if not snapshot.memory.exists:
        text = f"spec.memory.serviceRef.name: no MemoryService {reference.name!r} in namespace {snapshot.namespace}"
        return Problem("MemoryServiceMissing", f"{text}; create it, or leave serviceRef out")
    if not snapshot.memory.url:
        return Problem("MemoryServiceNotReady", f"MemoryService {reference.name!r} has no address yet", waits=True)
    return None


def _environment(snapshot: AgentSnapshot) -> Problem | None:
    """A run without an environment learns from the log alone, and needs spaces; the API server checks the rest."""
    task, training = snapshot.spec.task, snapshot.spec.training
    played = world_of(task)
    if played is not None or training is None:
        return None
    if spaces(task) is None:
        text = f"spec.task: no environment defines what the agent sees and does; set {KINDS}"
        return Problem("SpacesUnknown", text)
    return None


def _spaces(snapshot: AgentSnapshot) -> Problem | None:
    """A pinned model, and one already proven, know themselves what they see and do."""
    model = snapshot.before.model
    if snapshot.spec.deployment.model is not None or (model is not None and model.source != UNIFORM):
        return None
    text = task_flaw(snapshot.spec.task)
    return Problem("SpacesUnknown", text) if text else None
