"""The whole decision about one ModelDeployment: a snapshot in, a plan out."""

from dataclasses import replace

from learnloop_api.names import LABEL_REVISION
from learnloop_api.wire.routing import RoutingTable, arm_name
from learnloop_operator.core import allowed_pods, plan, times
from learnloop_operator.rollout import experiments, status, transitions
from learnloop_operator.rollout.children import gate_jobs, routing, serving_announcement, serving_arms, tensorzero
from learnloop_operator.rollout.state import experiment_state, orders, overrides
from learnloop_operator.rollout.state.rollout_state import ArmState, NextState, State, load, of_revision
from learnloop_operator.rollout.state.snapshot import Snapshot, spoken_by, stray_image

DRAIN_SECONDS = 5.0
"""A withdrawn arm lives on so long to answer 410 to the episodes it still had, which then reopen on stable."""
SETTLED_SECONDS = 0.2
"""After a move: the fast lane learns the new weight, and pods whose arm has left the table go."""


def current(snapshot: Snapshot) -> State:
    """The persisted state with the arms' readiness as it is now."""
    state = load(snapshot.before, snapshot.spec.rollout.steps)
    if state.stable is None:
        state = replace(state, stable=_serving(snapshot))
    trial = state.experiment
    if trial and not trial.running and experiment_state.current_experiment(snapshot.spec, trial) is None:
        drained = times.seconds_since(trial.finished_at, snapshot.now) >= DRAIN_SECONDS
        state = replace(state, experiment=None) if drained else state
    return state.with_readiness(snapshot.arms, snapshot.now)


def _serving(snapshot: Snapshot) -> ArmState | None:
    """The arm that serves although the status does not say so: the status was lost, the users were not."""
    table = snapshot.routing.table
    for arm in table.arms if table else ():
        live = snapshot.arms.get(arm.revision)
        if arm.role == "stable" and live and live.model:
            return ArmState(live.model, times.stamp(snapshot.now), live.ready > 0)
    return None


def decide(snapshot: Snapshot) -> plan.Plan:
    """Decides the next plan: transitions.py chooses a rule, for a canary steps/canary_steps.py; judging/ judges it.

    A raise writes the status before the table. So does removing an experiment's arm: no later leader restores its
    share. Everything else writes the table first, and an arm's pods go one pass after the table stops naming it."""
    if snapshot.deleting:
        return plan.Plan(status=snapshot.status)
    before = current(snapshot)
    snapshot = replace(snapshot, desired=experiments.desired_model(snapshot))
    state = overrides.take_override(snapshot, before)
    result = transitions.move(snapshot, state)
    decided = orders.fresh(before, result.state)
    shown = before if result.keep_table else result.state
    table = overrides.with_overrides(_table(snapshot, shown, result), snapshot.routing.table, result.state)
    wanted = _arms(snapshot, result.state)
    deletes, again = _orphans(snapshot, result, wanted)
    deletes = (*deletes, *gate_jobs.strays(snapshot, result.state))
    if _leaves_gateway(snapshot):
        # The table says gateway until the route is gone, so that no later pass forgets to look for it.
        route = plan.ObjectRef("gateway.networking.k8s.io/v1", "HTTPRoute", snapshot.namespace, snapshot.name)
        deletes, again = (*deletes, route), 0.0
    raised = result.state.weight > before.weight or result.state.challenger_count < before.challenger_count
    if result.events or raised:
        again = _sooner(again, SETTLED_SECONDS)
    arms = routing.drawn_arms(snapshot, shown)
    outside = tensorzero.registered(snapshot, arms)
    deletes = (*deletes, *tensorzero.strays(snapshot, outside, arms))
    return plan.Plan(
        status=status.status(snapshot, result, table.generation),
        apply=(
            *_routes(snapshot, result.state, table, shown),
            *_children(snapshot, result.state, wanted),
            *gate_jobs.gate_objects(snapshot, result.state),
        ),
        delete=deletes,
        outside=outside,
        calls=serving_announcement.verdict_calls(snapshot, before, result.state),
        announcements=serving_announcement.announcements(snapshot, result),
        events=(
            *result.events,
            *orders.notices(decided),
            *tensorzero.refused(snapshot),
        ),
        requeue_after=_sooner(again, overrides.next_end(result.state, snapshot.cluster_now)),
        status_first=raised,
    )


def _sooner(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _table(snapshot: Snapshot, shown: State, result: NextState) -> RoutingTable:
    if (result.keep_table or _leaves_gateway(snapshot)) and snapshot.routing.table is not None:
        return snapshot.routing.table
    return routing.table_for(snapshot, shown)


def _arms(snapshot: Snapshot, state: State) -> tuple[ArmState, ...]:
    """The arms whose pods must exist; before anything serves, that of the wanted model."""
    model = snapshot.desired.model
    if state.stable is None and model is not None and not snapshot.spec.suspend:
        if state.in_the_way(model):
            return ()
        return (ArmState(model, times.stamp(snapshot.now)),)
    return state.arms()


def _leaves_gateway(snapshot: Snapshot) -> bool:
    return snapshot.routing.route is not None and snapshot.spec.routing.mode == "service"


def _routes(snapshot: Snapshot, state: State, table: RoutingTable, shown: State) -> tuple[plan.KubeObject, ...]:
    arms, by_gateway = routing.drawn_arms(snapshot, shown), snapshot.spec.routing.mode == "gateway"
    drawn = table.model_copy(update={"arms": arms})
    route = routing.http_route(snapshot, drawn, state.blocked) if by_gateway else None
    config_map = routing.config_map(snapshot, state, table)
    if route is None:
        return (config_map,)
    # Servers that the table does not list refuse, and its `expires_at` ends a raise without an operator: so it
    # comes before a route that gives more. A route that gives less comes first, for it is what users feel.
    return (route, config_map) if routing.lowers(snapshot.routing.route, arms) else (config_map, route)


def _allowed(snapshot: Snapshot, arm: ArmState) -> bool:
    """An arm that stands goes on with what it was made with. One that is gone would be made with what the spec says."""
    live = snapshot.arms.get(arm.revision)
    made = live is not None and live.pod is not None
    spoken = spoken_by(snapshot.spec)
    rules = snapshot.defaults.pods
    return made or not (
        allowed_pods.forbidden(snapshot.spec.serving.pod, "spec.serving.pod", rules)
        or (spoken and stray_image(spoken, rules))
    )


def _children(snapshot: Snapshot, state: State, wanted: tuple[ArmState, ...]) -> tuple[plan.KubeObject, ...]:
    wanted = tuple(arm for arm in wanted if _allowed(snapshot, arm))
    options = (serving_arms.pod_options(snapshot, arm.revision) for arm in wanted)
    accounts = {one.service_account_name for one in options if one.service_account_name}
    return (
        *serving_arms.access(snapshot, accounts),
        *serving_arms.network_policy(snapshot),
        serving_arms.entry_service(snapshot, state),
        *((serving_arms.episode_key(snapshot),) if _may_lack_key(snapshot, wanted) else ()),
        *(serving_arms.arm_service(snapshot, arm.revision) for arm in wanted),
        *(serving_arms.arm_deployment(snapshot, arm, state.replicas(snapshot.spec, arm.revision)) for arm in wanted),
    )


def _may_lack_key(snapshot: Snapshot, wanted: tuple[ArmState, ...]) -> bool:
    """Is the key to be looked for? No cache holds Secrets, so only where pods are to be made that need it, or where
    some complain: what is not there keeps them from starting."""
    for arm in wanted:
        live = snapshot.arms.get(arm.revision)
        if live is None or (live.message and live.ready < max(live.replicas, 1)):
            return True
    return False


def _orphans(
    snapshot: Snapshot, result: NextState, wanted: tuple[ArmState, ...]
) -> tuple[tuple[plan.ObjectRef, ...], float | None]:
    """Arms that are not wanted and get no requests; and when to look again for those that are still draining."""
    remaining = {arm.revision for arm in wanted} | _led_to(snapshot, result.state)
    again = result.again_after
    doomed: list[plan.ObjectRef] = []
    for revision in sorted(_standing(snapshot) - {arm.revision for arm in wanted}):
        rest = _draining(snapshot, result.state, revision)
        if revision in remaining or rest > 0:
            again = max(rest, 0.5) if again is None else min(again, max(rest, 0.5))
            continue
        name = arm_name(snapshot.name, revision)
        doomed += [
            plan.ObjectRef("apps/v1", "Deployment", snapshot.namespace, name),
            plan.ObjectRef("v1", "Service", snapshot.namespace, name),
        ]
    return tuple(doomed), again


def _led_to(snapshot: Snapshot, state: State) -> set[str]:
    """Revisions that the live table or the live route names."""
    table, route = snapshot.routing.table, snapshot.routing.route
    listed = {arm.revision for arm in table.arms} if table else set()
    return listed | (set(route.weights) if route else set())


def _standing(snapshot: Snapshot) -> set[str]:
    """Revisions of which anything is left. An operator that dies between the two deletes leaves a Service alone."""
    services = (
        str((item["metadata"].get("labels") or {}).get(LABEL_REVISION, ""))
        for item in snapshot.children
        if item["kind"] == "Service" and plan.controller_uid(item) == snapshot.object["metadata"]["uid"]
    )
    return {*snapshot.arms, *filter(None, services)}


def _draining(snapshot: Snapshot, state: State, revision: str) -> float:
    block, trial = of_revision(state.blocks, revision), state.experiment
    went = [block.at] if block else []
    went += [player.since for player in trial.players if player.model.revision == revision] if trial else []
    return max((DRAIN_SECONDS - times.seconds_since(at, snapshot.now) for at in went), default=0.0)
