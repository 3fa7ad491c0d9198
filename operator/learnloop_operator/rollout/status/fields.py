"""The status: what a person, kstatus and Argo CD read."""

import math
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import Condition
from learnloop_api.kinds.model_deployment import ArmStatus, ModelDeploymentStatus
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition, merge, ready_triplet
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.anchor import kept as kept_anchor
from learnloop_operator.rollout.checks.dry_run_metrics import remark
from learnloop_operator.rollout.judging import fast_lane_breaches
from learnloop_operator.rollout.judging.analysis import episode_rate
from learnloop_operator.rollout.judging.arm_capacity import replicas, world
from learnloop_operator.rollout.judging.gate_suites import canary_waits
from learnloop_operator.rollout.judging.shadow_step import figures, gateway_problem, mirror_for
from learnloop_operator.rollout.model import blocked_models as blocked
from learnloop_operator.rollout.model.evidence_codec import EpisodeRate, save
from learnloop_operator.rollout.model.experiment_state import asked_for
from learnloop_operator.rollout.model.experiment_state import save as save_experiment
from learnloop_operator.rollout.model.next_state import NextState
from learnloop_operator.rollout.model.overrides import in_force, sentence
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Snapshot


def status(snapshot: Snapshot, move: NextState, routing_generation: int | None) -> dict[str, Any]:
    """Everything of the state, and everything that explains it."""
    state, steps, trial = move.state, snapshot.spec.rollout.steps, move.state.experiment
    sentence, stalled = _sentence(snapshot, move)
    stable = _arm(snapshot, move, state.stable)
    revision = state.stable.revision if state.stable else None
    return ModelDeploymentStatus(
        observed_generation=snapshot.generation,
        phase=move.phase,
        conditions=[Condition.model_validate(item) for item in _conditions(snapshot, move, sentence, stalled)],
        stable=stable,
        canary=_arm(snapshot, move, state.canary),
        previous=_arm(snapshot, move, state.previous),
        weight=state.weight if state.canary else None,
        step=state.step,
        step_weight=None if state.step is None else steps[state.step].weight,
        profile=snapshot.profile,
        step_text=_step_text(steps, state),
        step_started_at=state.step_started_at,
        step_base_episodes=None if state.step is None else state.step_base,
        rollout_started_at=state.rollout_started_at,
        promoted_at=state.promoted_at,
        blocked_revision=blocked.shown(
            state.pins, snapshot.desired.model, state.stable.model if state.stable else None
        ),
        blocked_revisions=list(state.pins) or None,
        gates=state.gates,
        shadow=figures(snapshot, state),
        experiment=save_experiment(trial, asked_for(snapshot.spec, trial) if trial else None),
        routing_generation=routing_generation,
        verdict=sentence[:1024],
        replicas=world(snapshot, revision).replicas if revision else 0,
        selector=_selector(snapshot, revision),
        hand=state.hand,
        last_stable=state.last_stable,
        overrides=list(state.overrides) or None,
        decisions=list(state.decisions) or None,
        anchor=list(kept_anchor(snapshot.spec.analysis, state.anchor)) or None,
        evidence=save(
            state.trials,
            state.ratios,
            state.reports,
            snapshot.spec.analysis,
            _pace(snapshot, move),
            snapshot.before.evidence or (),
        ),
    ).to_kube()


def _pace(snapshot: Snapshot, move: NextState) -> EpisodeRate:
    canary = move.state.canary
    rate = episode_rate(snapshot, move.state, canary.revision) if canary else 0.0
    return EpisodeRate(snapshot.now, move.state.weight / 100.0, rate)


def _step_text(steps: list[RolloutStep], state: State) -> str | None:
    step = state.step
    if step is None:
        return "experiment" if state.experiment and state.experiment.running else None
    kind = " shadow" if steps[step].shadow else " experiment" if steps[step].experiment else ""
    return f"{step + 1}/{len(steps)}{kind}"


def _sentence(snapshot: Snapshot, move: NextState) -> tuple[str, bool]:
    said = f"{move.sentence}{remark(move.state.reports)}"
    if not snapshot.route_problem:
        return said, move.degraded
    return f"the HTTPRoute is not in force as it stands: {snapshot.route_problem}; {said}", True


def _selector(snapshot: Snapshot, revision: str | None) -> str:
    arm = f",{names.LABEL_REVISION}={revision}" if revision else ""
    return f"{names.LABEL_DEPLOYMENT}={snapshot.name}{arm}"


def _arm(snapshot: Snapshot, move: NextState, arm: ArmState | None) -> ArmStatus | None:
    if arm is None:
        return None
    live, wanted = world(snapshot, arm.revision), replicas(snapshot, move.state, arm.revision)
    trial = move.state.experiment
    # An experiment has figures of its own, which change when they tell something new.
    seen = None if trial and trial.running else snapshot.evidence.arms.get(arm.revision)
    old = _before(snapshot, arm.revision)
    return ArmStatus(
        revision=arm.revision,
        uri=arm.model.uri,
        sha256=arm.model.sha256,
        replicas=wanted,
        ready_replicas=live.ready,
        episodes=seen.episodes if seen else old.episodes if old else None,
        mean_return=_kept(seen.mean_return if seen else None, old.mean_return if old else None, 2),
        success_rate=_kept(seen.success_rate if seen else None, old.success_rate if old else None, 4),
        since=arm.since or None,
        message=(live.message or None) if live.ready < wanted else None,
    )


def _before(snapshot: Snapshot, revision: str) -> ArmStatus | None:
    before = snapshot.before
    known = (before.stable, before.canary, before.previous)
    return next((arm for arm in known if arm and arm.revision == revision), None)


def _kept(fresh: float | None, old: float | None, digits: int) -> float | None:
    """The newest figure there is: an arm that is quiet for a while does not lose its record."""
    value = fresh if fresh is not None and math.isfinite(fresh) else old
    return None if value is None else round(value, digits)


def _conditions(snapshot: Snapshot, move: NextState, sentence: str, stalled: bool) -> list[dict[str, Any]]:
    generation, phase = snapshot.generation, move.phase
    model = snapshot.desired.model
    rolled_back = move.state.blocked if model is None else move.state.in_the_way(model)
    serving = move.state.stable is not None and (
        world(snapshot, move.state.stable.revision).ready > 0 or snapshot.spec.serving.replicas == 0
    )
    # Who waits for Ready waits for the model that was asked for, also while that one waits for the guard of another.
    under_way = phase in ("Pending", "Progressing", "Paused") or move.reason == reasons.WAITING_FOR_GUARD
    stuck = snapshot.desired.final and move.reason == reasons.MODEL_UNRESOLVED
    under_way = under_way and not stuck
    steady = phase in ("Healthy", "Guarding", "Suspended") and not under_way
    ready = serving and steady and not snapshot.route_problem
    wanted = ready_triplet(
        ready=ready,
        progressing=under_way,
        stalled=stalled or stuck or phase in ("RolledBack", "Degraded"),
        reason=move.reason,
        message=sentence,
        generation=generation,
    )
    wanted += [
        condition(reasons.PROGRESSING, TRUE if under_way else FALSE, move.reason, sentence, generation),
        condition(reasons.PAUSED, TRUE if phase == "Paused" else FALSE, move.reason, sentence, generation),
        condition(
            reasons.ROLLED_BACK_CONDITION,
            TRUE if rolled_back else FALSE,
            rolled_back.reason if rolled_back else "NotRolledBack",
            rolled_back.message if rolled_back else "the wanted model has not been rolled back",
            generation,
        ),
        data_condition(move, generation),
        fast_lane_breaches.condition_of(snapshot),
        *_gated(snapshot, move, generation),
        *_shadowing(snapshot, move, generation),
        *_overridden(move, generation),
    ]
    before = [item.to_kube() for item in snapshot.before.conditions]
    return merge(before, wanted, snapshot.time)


def data_condition(move: NextState, generation: int) -> dict[str, Any]:
    """DataAvailable, without its transition time."""
    if move.data is None:
        return condition(reasons.DATA_AVAILABLE, UNKNOWN, "NotNeeded", "no arm is being compared", generation)
    why = move.data_reason or move.reason
    if move.data and why in reasons.PROVIDER:
        # Nobody can tell; and so the condition's time says since when.
        return condition(reasons.DATA_AVAILABLE, UNKNOWN, why, move.data, generation)
    if move.data:
        return condition(reasons.DATA_AVAILABLE, FALSE, why, move.data, generation)
    return condition(reasons.DATA_AVAILABLE, TRUE, "Complete", "every check has its numbers", generation)


def _gated(snapshot: Snapshot, move: NextState, generation: int) -> list[dict[str, Any]]:
    """What the gates say; only where there are some."""
    found = move.state.gates
    if snapshot.spec.gates is None:
        return []
    if found is None:
        waits = canary_waits(snapshot, move.state)
        said = "the suites begin" if waits else "no candidate has come to the gates"
        return [condition(reasons.GATED, TRUE if waits else FALSE, "NotJudged", said, generation)]
    shut = found.phase in ("Running", "AwaitingApproval")
    said = f"{found.revision}: {found.message or found.phase}"
    return [condition(reasons.GATED, TRUE if shut else FALSE, f"Gates{found.phase}", said[:1024], generation)]


def _overridden(move: NextState, generation: int) -> list[dict[str, Any]]:
    """Where people decide in the policy's place; only where they do, or did within a day."""
    if not move.state.overrides:
        return []
    said = "; ".join(map(sentence, in_force(move.state)))
    standing, reason = (TRUE, "InForce") if said else (FALSE, "Over")
    told = (said or "the policy decides for every agent")[:1024]
    return [condition(reasons.OVERRIDDEN, standing, reason, told, generation)]


def _shadowing(snapshot: Snapshot, move: NextState, generation: int) -> list[dict[str, Any]]:
    """Who copies requests to the canary; only where a step asks for it."""
    if not any(step.shadow for step in snapshot.spec.rollout.steps):
        return []
    mirror = mirror_for(snapshot, move.state)
    if mirror is None:
        return [condition(reasons.SHADOWING, FALSE, "NotInShadow", "no canary is at a shadow step", generation)]
    text = f"the policy servers of stable copy {mirror.percent} % of its episodes to {mirror.revision}"
    problem = gateway_problem(snapshot, mirror.percent)
    if mirror.by_gateway and not snapshot.route_problem:
        said = f"{text}, and the gateway {_of_requests(snapshot, mirror.percent)}"
        return [condition(reasons.SHADOWING, TRUE, "MirroredByGateway", said, generation)]
    if mirror.by_gateway:
        problem = f"the HTTPRoute is not in force as it stands: {snapshot.route_problem}"
    said = f"{text}; the gateway does not: {problem}" if problem else text
    return [condition(reasons.SHADOWING, TRUE, "MirroredByServers", said, generation)]


def _of_requests(snapshot: Snapshot, percent: int) -> str:
    """What the gateway copies, as far as it has said what it can do."""
    but = "requests but the opening of episodes"
    if percent == 100:
        return f"all {but}"
    if snapshot.percent_problem:
        return f"is asked for {percent} % of the {but} and may copy all of them: {snapshot.percent_problem}"
    return f"{percent} % of the {but}"
