"""The status: what a person, kstatus and Argo CD read."""

import math
from typing import Any

from learnloop_api import names
from learnloop_api.kinds import base, model_deployment
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition, merge, ready_triplet
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.against_stable import EpisodeRate, save_comparisons
from learnloop_operator.rollout.judging import judgement, release_gates, shadow_step, watched_arms
from learnloop_operator.rollout.state import experiment_state, overrides, rollout_state
from learnloop_operator.rollout.state.rollout_state import ArmState, NextState, State
from learnloop_operator.rollout.state.snapshot import Snapshot


def status(snapshot: Snapshot, move: NextState, routing_generation: int | None) -> dict[str, Any]:
    """Everything of the state, and everything that explains it."""
    state, steps, trial = move.state, snapshot.spec.rollout.steps, move.state.experiment
    sentence, stalled = _sentence(snapshot, move)
    stable = _arm(snapshot, move, state.stable)
    revision = state.stable.revision if state.stable else None
    return model_deployment.ModelDeploymentStatus(
        observed_generation=snapshot.generation,
        phase=move.phase,
        conditions=[base.Condition.model_validate(item) for item in _conditions(snapshot, move, sentence, stalled)],
        stable=stable,
        canary=_arm(snapshot, move, state.canary),
        previous=_arm(snapshot, move, state.previous),
        weight=state.weight if state.canary else None,
        step=state.step,
        step_weight=None if state.step is None else steps[state.step].weight,
        step_text=_step_text(steps, state),
        step_started_at=state.step_started_at,
        step_base_episodes=None if state.step is None else state.step_base,
        rollout_started_at=state.rollout_started_at,
        promoted_at=state.promoted_at,
        blocked_revision=rollout_state.shown(
            state.blocks, snapshot.desired.model, state.stable.model if state.stable else None
        ),
        blocked_revisions=list(state.blocks) or None,
        gates=state.gates,
        shadow=shadow_step.figures(snapshot, state),
        experiment=experiment_state.save_experiment(
            trial, experiment_state.current_experiment(snapshot.spec, trial) if trial else None
        ),
        routing_generation=routing_generation,
        verdict=sentence[:1024],
        replicas=snapshot.arm(revision).replicas if revision else 0,
        selector=_selector(snapshot, revision),
        standing_order=state.standing_order,
        last_stable=state.last_stable,
        overrides=list(state.overrides) or None,
        decisions=list(state.decisions) or None,
        evidence=save_comparisons(state.comparisons, snapshot.spec.analysis, _pace(snapshot, move)),
    ).to_kube()


def _pace(snapshot: Snapshot, move: NextState) -> EpisodeRate:
    canary = move.state.canary
    rate = judgement.episode_rate(snapshot, move.state, canary.revision) if canary else 0.0
    return EpisodeRate(snapshot.now, move.state.weight / 100.0, rate)


def _step_text(steps: list[RolloutStep], state: State) -> str | None:
    step = state.step
    if step is None:
        return "experiment" if state.experiment and state.experiment.running else None
    return f"{step + 1}/{len(steps)}{' shadow' if steps[step].shadow else ''}"


def _sentence(snapshot: Snapshot, move: NextState) -> tuple[str, bool]:
    if not snapshot.route_problem:
        return move.sentence, move.degraded
    return f"the HTTPRoute is not in force: {snapshot.route_problem}; {move.sentence}", True


def _selector(snapshot: Snapshot, revision: str | None) -> str:
    arm = f",{names.LABEL_REVISION}={revision}" if revision else ""
    return f"{names.LABEL_DEPLOYMENT}={snapshot.name}{arm}"


def _arm(snapshot: Snapshot, move: NextState, arm: ArmState | None) -> model_deployment.ArmStatus | None:
    if arm is None:
        return None
    live, wanted = (
        snapshot.arm(arm.revision),
        move.state.replicas(snapshot.spec, arm.revision),
    )
    trial = move.state.experiment
    # An experiment has figures of its own, which change when they tell something new.
    counted = None if trial and trial.running else snapshot.evidence.arms.get(arm.revision)
    old = _before(snapshot, arm.revision)
    return model_deployment.ArmStatus(
        revision=arm.revision,
        uri=arm.model.uri,
        sha256=arm.model.sha256,
        replicas=wanted,
        ready_replicas=live.ready,
        episodes=counted.episodes if counted else old.episodes if old else None,
        mean_return=_latest(counted.mean_return if counted else None, old.mean_return if old else None, 2),
        success_rate=_latest(counted.success_rate if counted else None, old.success_rate if old else None, 4),
        since=arm.since or None,
        message=(live.message or None) if live.ready < wanted else None,
    )


def _before(snapshot: Snapshot, revision: str) -> model_deployment.ArmStatus | None:
    before = snapshot.before
    recorded = (before.stable, before.canary, before.previous)
    return next((arm for arm in recorded if arm and arm.revision == revision), None)


def _latest(fresh: float | None, old: float | None, digits: int) -> float | None:
    """The newest figure there is: an arm that is quiet for a while does not lose its record."""
    value = fresh if fresh is not None and math.isfinite(fresh) else old
    return None if value is None else round(value, digits)


def _conditions(snapshot: Snapshot, move: NextState, sentence: str, stalled: bool) -> list[dict[str, Any]]:
    generation, phase = snapshot.generation, move.phase
    model = snapshot.desired.model
    rolled_back = move.state.blocked if model is None else move.state.in_the_way(model)
    serving = move.state.stable is not None and (
        snapshot.arm(move.state.stable.revision).ready > 0 or snapshot.spec.serving.replicas == 0
    )
    # Who waits for Ready waits for the model that was asked for, also while that one waits for the guard of another.
    under_way = phase in ("Pending", "Progressing", "Paused") or move.reason == reasons.WAITING_FOR_GUARD
    stuck = snapshot.desired.final and move.reason == reasons.MODEL_UNRESOLVED
    under_way = under_way and not stuck
    steady = phase in ("Healthy", "Guarding", "Suspended") and not under_way
    ready = serving and steady and not snapshot.route_problem
    stalled = stalled or stuck or phase in ("RolledBack", "Degraded")
    wanted = ready_triplet(snapshot, move.reason, sentence, ready=ready, progressing=under_way, stalled=stalled)
    wanted += [
        condition(reasons.PROGRESSING, under_way, move.reason, sentence, generation),
        condition(reasons.PAUSED, phase == "Paused", move.reason, sentence, generation),
        condition(
            reasons.ROLLED_BACK_CONDITION,
            rolled_back is not None,
            rolled_back.reason if rolled_back else "NotRolledBack",
            rolled_back.message if rolled_back else "the wanted model has not been rolled back",
            generation,
        ),
        data_condition(move, generation),
        watched_arms.fast_lane_condition(snapshot),
        *_gated(snapshot, move, generation),
        *_shadowing(snapshot, move, generation),
        *_overridden(move, generation),
    ]
    before = [item.to_kube() for item in snapshot.before.conditions]
    return merge(before, wanted, snapshot.time)


def data_condition(move: NextState, generation: int) -> dict[str, Any]:
    """DataAvailable, without its transition time."""
    if move.missing is None:
        return condition(reasons.DATA_AVAILABLE, UNKNOWN, "NotNeeded", "no arm is being compared", generation)
    why = move.missing_reason or move.reason
    if move.missing and why in reasons.PROVIDER:
        # Unknown; and so the condition's time says since when.
        return condition(reasons.DATA_AVAILABLE, UNKNOWN, why, move.missing, generation)
    if move.missing:
        return condition(reasons.DATA_AVAILABLE, FALSE, why, move.missing, generation)
    return condition(reasons.DATA_AVAILABLE, TRUE, "Complete", "every check has its numbers", generation)


def _gated(snapshot: Snapshot, move: NextState, generation: int) -> list[dict[str, Any]]:
    """Condition of the gates, where the spec has some."""
    result = move.state.gates
    if snapshot.spec.gates is None:
        return []
    if result is None:
        waits = release_gates.canary_waits(snapshot, move.state)
        text = "the suites begin" if waits else "no candidate has come to the gates"
        return [condition(reasons.GATED, waits, "NotJudged", text, generation)]
    shut = result.phase in ("Running", "AwaitingApproval")
    text = f"{result.revision}: {result.message or result.phase}"
    return [condition(reasons.GATED, shut, f"Gates{result.phase}", text[:1024], generation)]


def _overridden(move: NextState, generation: int) -> list[dict[str, Any]]:
    """Condition of overrides, while one is in force or ended within a day."""
    if not move.state.overrides:
        return []
    text = "; ".join(map(overrides.sentence, overrides.in_force(move.state)))
    standing, reason = (TRUE, "InForce") if text else (FALSE, "Over")
    message = (text or "the policy decides for every agent")[:1024]
    return [condition(reasons.OVERRIDDEN, standing, reason, message, generation)]


def _shadowing(snapshot: Snapshot, move: NextState, generation: int) -> list[dict[str, Any]]:
    """Condition of shadowing, where a step asks for it."""
    if not any(step.shadow for step in snapshot.spec.rollout.steps):
        return []
    mirror = shadow_step.mirror_for(snapshot, move.state)
    if mirror is None:
        return [condition(reasons.SHADOWING, FALSE, "NotInShadow", "no canary is at a shadow step", generation)]
    text = f"the policy servers of stable copy {mirror.percent} % of its episodes to {mirror.revision}"
    return [condition(reasons.SHADOWING, TRUE, "Mirrored", text, generation)]
