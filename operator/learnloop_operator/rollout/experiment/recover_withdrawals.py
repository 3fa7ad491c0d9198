"""Withdrawals of an experiment's guests that were written where users feel them, and whose status was not.

The operator takes them into the state before it decides anything else. A person's order, a missing model or a
Prometheus that does not answer must not give a guest its share back.
"""

from learnloop_operator.rollout.model.experiment_state import ExperimentState
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.model.withdrawn_guests import WithdrawnGuest, WithdrawnGuests


def guests_out(trial: ExperimentState | None) -> WithdrawnGuests | None:
    """What the route is to carry; None while nobody has left a split that users have had."""
    if trial is None or trial.phase == "Starting" or trial.started_at is None:
        return None
    gone = tuple(
        WithdrawnGuest(revision=player.model.revision, standing=player.standing, message=player.message[:1024])
        for player in trial.players[trial.hosts :]
        if player.standing != "playing"
    )
    return WithdrawnGuests(experiment=trial.id, since=trial.started_at, guests=gone) if gone else None


def adopt_guests(snapshot: Snapshot, trial: ExperimentState) -> ExperimentState:
    """The experiment without the guests that the live route or the live table has dropped for good.

    The route and the table are two writes, and an operator may have died after either.
    """
    if trial.phase not in ("Running", "Won"):
        return trial
    return _by_table(snapshot, _by_route(snapshot, trial))


def _by_route(snapshot: Snapshot, trial: ExperimentState) -> ExperimentState:
    route = snapshot.routing.route
    out = route.guests_out if route else None
    if route is None or out is None or (out.experiment, out.since) != (trial.id, trial.started_at):
        return trial
    said = {guest.revision: guest for guest in out.guests if guest.revision not in route.weights}
    for index in _playing(trial):
        player = trial.players[index]
        if guest := said.get(player.model.revision):
            trial = trial.with_player(index, player.out(guest.standing, guest.message, snapshot.now))
    return trial


def _by_table(snapshot: Snapshot, trial: ExperimentState) -> ExperimentState:
    live, known = snapshot.routing.table, snapshot.before.routing_generation
    if live is None or known is None or live.generation <= known:
        return trial
    listed = {arm.revision for arm in live.arms}
    for index in _playing(trial):
        player = trial.players[index]
        if player.model.revision not in listed:
            out = player.out("withdrawn", "taken out just before the operator restarted", snapshot.now)
            trial = trial.with_player(index, out)
    return trial


def _playing(trial: ExperimentState) -> list[int]:
    return [index for index in range(trial.hosts, len(trial.players)) if trial.players[index].standing == "playing"]
