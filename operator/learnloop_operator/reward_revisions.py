"""RewardPolicy: publish each content of the spec once, under the hash of that content."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, DryRunFigures, RewardSignals
from learnloop_common.reward_rules.components import outcome_readers
from learnloop_operator.core import conditions, times
from learnloop_operator.core.plan import BaseSnapshot, Call, Notice, Plan, revision

REVISION_DIGITS = 12
SUSPECTED = "RewardHackingSuspected"
BIAS = "BiasSuspected"
RECORDED = "OutcomeValuesRecorded"
RETRY_SECONDS = 15.0
DRY_RUN_EPISODES = 20_000
REPEAT_SECONDS = 300.0
"""Published again this often, so that a data plane that lost its database learns the policy again. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPolicySnapshot(BaseSnapshot):
    """A RewardPolicy, how many agents use it, and what the data plane says of its rewards (None: nothing new)."""

    spec: RewardPolicySpec
    agents: int = 0
    signals: RewardSignals | None = None
    dry_run: DryRunFigures | None = None
    """Fresh figures, where `needs_dry_run` asked for them and the data plane had the time."""
    bias: BiasFigures | None = None
    """Result of the check in spec.bias under this content; None: there is none, or the data plane has not answered."""


def decide(view: RewardPolicySnapshot) -> Plan:
    """Publish when the content is new (or it is time to repeat it), and say so.

    Weights and keys are checked by the model itself: a spec that got past the API server's rules never comes here.
    """
    if view.deleting:
        return Plan(status=view.status)
    if view.spec.dry_run:
        return _tried(view)
    body = content(view.spec)
    number = revision(body, REVISION_DIGITS)
    new = view.status.get("revision") != number
    if new and view.spec.bias and view.spec.bias.block_publishing and (view.bias is None or view.bias.suspected):
        return _held_back(view, number)
    published = view.time if new else view.status.get("publishedAt") or view.time
    call = Call("PUT", f"/api/v1/rewards/policies/{view.name}/revisions/{number}", body)
    due = new or times.seconds_since(published, view.now) >= REPEAT_SECONDS
    message = f"revision {number} is in force"
    judged = [_suspicion(view, new=new), *_bias(view, number), *_recorded(view, new=new)]
    state = _status(view, "Published", "Published", message, judged, ready=True, revision=number, publishedAt=published)
    news = (Notice("Normal", "Published", f"{message} for {view.agents} agents"),) if new else ()
    return Plan(
        status=state,
        calls=(call,) if due else (),
        events=(*news, *_warnings(view, judged)),
        requeue_after=RETRY_SECONDS if new else None,  # of a revision that it did not know it could tell nothing
    )


def _status(
    view: RewardPolicySnapshot,
    phase: str,
    reason: str,
    message: str,
    judged: list[Mapping[str, Any]],
    *,
    ready: bool,
    progressing: bool = False,
    stalled: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    triplet = conditions.ready_triplet(view, reason, message, ready=ready, progressing=progressing, stalled=stalled)
    state = {
        "observedGeneration": view.generation,
        "phase": phase,
        "revision": view.status.get("revision"),
        "publishedAt": view.status.get("publishedAt"),
        "agents": view.agents,
        **fields,
        "conditions": conditions.merge(view.status.get("conditions") or (), [*triplet, *judged], view.time),
    }
    return {key: value for key, value in state.items() if value is not None}


WARNED = {SUSPECTED: conditions.TRUE, BIAS: conditions.TRUE, RECORDED: conditions.FALSE}
"""Status of each condition that is a warning."""


def _warnings(view: RewardPolicySnapshot, judged: list[Mapping[str, Any]]) -> tuple[Notice, ...]:
    """One event for each finding: a condition's sentence stays while the finding does."""
    fresh = [item for item in judged if item["message"] != conditions.find(view.status, item["type"]).get("message")]
    return tuple(
        Notice("Warning", "NeverRecorded" if item["type"] == RECORDED else item["type"], item["message"])
        for item in fresh
        if item["status"] == WARNED[item["type"]]
    )


def content_revision(spec: RewardPolicySpec) -> str:
    return revision(content(spec), REVISION_DIGITS)


def content(spec: RewardPolicySpec) -> dict[str, Any]:
    """Published content: a dry run and its later publication are one revision."""
    return {name: value for name, value in spec.to_kube().items() if name not in ("dryRun", "bias")}


def content_with_bias(spec: RewardPolicySpec) -> dict[str, Any]:
    """The same with the check, which says nothing of what an episode is worth."""
    return content(spec) | ({"bias": spec.bias.to_kube()} if spec.bias else {})


def needs_dry_run(spec: RewardPolicySpec, status: Mapping[str, Any]) -> bool:
    return spec.dry_run and (status.get("dryRun") or {}).get("revision") != content_revision(spec)


def _tried(view: RewardPolicySnapshot) -> Plan:
    """Publish nothing; say how the content compares with what is in force."""
    number, in_force = content_revision(view.spec), view.status.get("revision")
    waits = needs_dry_run(view.spec, view.status)
    message = None if waits else view.status.get("dryRun")
    if waits and view.dry_run is not None:
        figures = view.dry_run
        message = {"revision": number, "trajectories": figures.trajectories, "message": figures.sentence}
        if figures.correlation is not None:
            message["correlation"] = figures.correlation
    stays = f"revision {in_force} stays in force" if in_force else "nothing is in force yet: set dryRun to false"
    result = message["message"] if message else "waiting for the data plane to compare"
    if message and view.bias and "bias" not in message:
        message = {**message, "bias": view.bias.sentence}
    judged = [_suspicion(view, new=not in_force), *_bias(view, number)]
    state = _status(
        view,
        "DryRun",
        "DryRun",
        f"dry-run of {number}: {result}; {stays}",
        judged,
        ready=bool(in_force),
        progressing=message is None,
        dryRun=message,
    )
    events = (*((Notice("Normal", "DryRun", result),) if message and waits else ()), *_warnings(view, judged))
    done = message and (view.spec.bias is None or "bias" in message)
    return Plan(status=state, events=events, requeue_after=None if done else RETRY_SECONDS)


def _held_back(view: RewardPolicySnapshot, number: str) -> Plan:
    """Publish nothing: the check found bias, or has yet to look."""
    in_force, looked = view.status.get("revision"), view.bias is not None
    stays = f"revision {in_force} stays in force" if in_force else "nothing is in force yet"
    why = "the bias check found something" if looked else "waiting for the data plane to check it for bias"
    fix = "; mend the policy, or set bias.blockPublishing to false" if looked else ""
    judged = [_suspicion(view, new=not in_force), *_bias(view, number)]
    state = _status(
        view,
        "Blocked" if looked else "Checking",
        BIAS if looked else "CheckingBias",
        f"revision {number} is not published: {why}; {stays}{fix}",
        judged,
        ready=bool(in_force) and not looked,
        progressing=not looked,
        stalled=looked,
    )
    wait = REPEAT_SECONDS if looked else RETRY_SECONDS
    return Plan(status=state, events=_warnings(view, judged), requeue_after=wait)


def _bias(view: RewardPolicySnapshot, number: str) -> list[Mapping[str, Any]]:
    """The condition BiasSuspected of the content that stands in the spec, published or not; none without a check.

    As with the other suspicion, its sentence is written when the finding appears or becomes another one.
    """
    if view.spec.bias is None:
        return []
    before, result = conditions.find(view.status, BIAS), view.bias
    same = str(before.get("message", "")).startswith(f"revision {number}: ")
    same = same and before.get("observedGeneration") == view.generation
    if same and (result is None or before.get("reason") == result.reason):
        return [before]
    if result is None:
        message = f"revision {number}: the data plane has not answered yet"
        return [conditions.condition(BIAS, None, "NotLookedAt", message, view.generation)]
    message = f"revision {number}: {result.sentence}"
    return [conditions.condition(BIAS, result.suspected, result.reason, message, view.generation)]


def _suspicion(view: RewardPolicySnapshot, *, new: bool) -> Mapping[str, Any]:
    """The condition RewardHackingSuspected.

    Its sentence has figures of the moment: it is written when the finding appears or becomes another one, and stays
    while the finding does, so that a policy at rest costs no write.
    """
    before = {} if new else conditions.find(view.status, SUSPECTED)
    result = view.signals
    if before and (result is None or before.get("reason") == result.reason):
        return {**before, "observedGeneration": view.generation}
    if result is None:
        message = "the data plane has not answered yet"
        return conditions.condition(SUSPECTED, None, "NotLookedAt", message, view.generation)
    worst = f"; look at trajectories {', '.join(result.worst)}" if result.worst else ""
    return conditions.condition(SUSPECTED, result.suspected, result.reason, result.sentence + worst, view.generation)


def _recorded(view: RewardPolicySnapshot, *, new: bool) -> list[Mapping[str, Any]]:
    """The condition OutcomeValuesRecorded, of a policy that names outcome values. Its sentence stays while the reason
    does."""
    if not outcome_readers(view.spec):
        return []
    before, result = {} if new else conditions.find(view.status, RECORDED), view.signals
    reason = "NeverRecorded" if result and result.unrecorded else "Recorded"
    if result is None or result.reason == "NotEnoughRewards" or before.get("reason") == reason:
        if before:
            return [{**before, "observedGeneration": view.generation}]
        message = "too few rewarded episodes to tell"
        return [conditions.condition(RECORDED, None, "NotLookedAt", message, view.generation)]
    if not result.unrecorded:
        message = "the newest episodes have every outcome value that the policy names"
        return [conditions.condition(RECORDED, True, reason, message, view.generation)]
    message = (
        f"none of the newest {result.rewards} episodes has {', '.join(result.unrecorded)}; recorded: "
        f"{', '.join(result.recorded) or 'no outcome value'}; correct the key, or record it by Episode.outcome()"
    )
    return [conditions.condition(RECORDED, False, reason, message[:1024], view.generation)]
