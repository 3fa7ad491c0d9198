"""The arms of an experiment: how they begin, what one look takes from their evidence, and how they leave."""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import AnyExperiment, Experiment, ExperimentGuardrail, ExperimentStep
from learnloop_operator.core.artifact_uris import foreign
from learnloop_operator.core.times import seconds_since, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import experiment_evidence
from learnloop_operator.rollout.checks.experiment_evidence import (
    GuardrailEvidence,
    bars,
    fresh,
    share_of_alpha,
    standing,
)
from learnloop_operator.rollout.evidence import number
from learnloop_operator.rollout.judging.analysis import is_steady
from learnloop_operator.rollout.judging.arms import SHORTEST, hopeless, world
from learnloop_operator.rollout.judging.experiment_arms import breach, counts, measured, silences
from learnloop_operator.rollout.judging.fast_lane_breaches import gross_breach
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.rollout.model.experiment_state import CANARY, STABLE, ExperimentState, Player, id_of, in_unit
from learnloop_operator.rollout.model.rollout_state import ArmState, NextState, State, happened, sentence
from learnloop_operator.rollout.model.snapshot import Model, Snapshot, WithdrawnGuest, WithdrawnGuests, model_here
from learnloop_operator.statistics.betting import mean_interval


def due(snapshot: Snapshot, state: State) -> Experiment | None:
    """The experiment that has not run yet. It waits for a rollout and its guard to be over."""
    wanted = snapshot.spec.experiment
    if wanted is None or state.canary or state.previous:
        return None
    return wanted if state.experiment is None or state.experiment.id != id_of(wanted) else None


def begin(snapshot: Snapshot, state: State, stable: ArmState, asked: Experiment) -> NextState:
    """Create the arms. They get no episode before all of them have pods."""
    players = tuple(
        Player(arm.name, _model(snapshot, arm.uri, arm.sha256), arm.weight, since=stamp(snapshot.now))
        for arm in asked.arms
    )
    if problem := _problem(snapshot, state, stable, players):
        return NextState(state, "Degraded", reasons.EXPERIMENT_INVALID, problem, degraded=True)
    return _begun(state, _trial(snapshot, stable, asked, players))


def begin_step(
    snapshot: Snapshot, state: State, arms: tuple[ArmState, ArmState], step: int, weight: int, asked: ExperimentStep
) -> NextState:
    """Create the arms of an experiment at a step of a rollout: stable and the canary, which are there, and the guests.

    A guest that is one of the two is left out: an earlier winner may serve by now.
    """
    stable, canary = arms
    first = Player(CANARY, canary.model, weight, ready=canary.was_ready, since=stamp(snapshot.now))
    guests = (
        Player(arm.name, _model(snapshot, arm.uri, arm.sha256), arm.weight, since=stamp(snapshot.now))
        for arm in asked.arms
    )
    hosts = {stable.revision, canary.revision}
    players = (first, *(player for player in guests if player.model.revision not in hosts))
    trial = replace(_trial(snapshot, stable, asked, players), step=step, promoted_over=snapshot.desired.over)
    for player in trial.guests():
        stray = foreign(player.model.uri, snapshot.namespace)
        if why := (f"uri of {player.name}: {stray}" if stray else _rolled_back(state, player)):
            problem = f"spec.rollout.steps[{step}].experiment.arms: {why}"
            interval = float(snapshot.spec.analysis.interval_seconds)
            return NextState(
                state, "Degraded", reasons.EXPERIMENT_INVALID, problem, again_after=interval, degraded=True, data=""
            )
    return _begun(state, trial)


def _trial(snapshot: Snapshot, stable: ArmState, asked: AnyExperiment, players: tuple[Player, ...]) -> ExperimentState:
    left = 100 - sum(player.weight for player in players)
    first = Player(STABLE, stable.model, left, ready=stable.was_ready, since=stamp(snapshot.now))
    named = ", ".join(f"{player.name} {player.weight} %" for player in players)
    return ExperimentState(
        id_of(asked),
        "Starting",
        tuple(
            replace(player, tally=tally, guards=(GuardrailEvidence(),) * len(asked.guardrails))
            for player, tally in zip((first, *players), fresh(len(players) + 1), strict=True)
        ),
        started_at=stamp(snapshot.now),
        message=f"experiment {id_of(asked)} begins: {named}, stable {left} %; waiting for the arms' pods",
    )


def _begun(state: State, trial: ExperimentState) -> NextState:
    text = happened(reasons.EXPERIMENT_STARTED, trial.message)
    after = replace(state, experiment=trial)
    # A step's guests may have pods already, or there is none: nothing that happens would tell.
    soon = 5.0 if trial.guests() else 0.0
    return NextState(
        after,
        "Progressing",
        reasons.EXPERIMENT_STARTED,
        trial.message,
        text,
        again_after=soon,
        data=None if trial.step is None else "",
    )


def unready(snapshot: Snapshot, trial: ExperimentState) -> list[str]:
    """Names of the guests without a ready pod."""
    return [player.name for player in trial.guests() if not world(snapshot, player.model.revision).ready]


def _model(snapshot: Snapshot, uri: str, sha256: str | None) -> Model:
    return model_here(snapshot.spec, uri, sha256)


def _problem(snapshot: Snapshot, state: State, stable: ArmState, players: tuple[Player, ...]) -> str:
    for index, player in enumerate(players):
        field = f"spec.experiment.arms[{index}]"
        if player.model.revision == stable.revision:
            return f"{field}: {player.name} is the model that stable serves: stable is an arm already, remove it"
        if why := foreign(player.model.uri, snapshot.namespace):
            return f"{field}.uri: {why}"
        if why := _rolled_back(state, player):
            return f"{field}: {why}"
    return ""


def _rolled_back(state: State, player: Player) -> str:
    """Why a blocked model cannot be a guest; "" when it is not blocked."""
    pin = state.in_the_way(player.model)
    if pin is None:
        return ""
    return (
        f"{player.name} was rolled back ({sentence(pin, player.model)}): remove it, or unblock {pin.revision} by retry"
    )


# An experiment in one sentence.


def standings(asked: AnyExperiment, trial: ExperimentState) -> str:
    """`success rate of b 71 % …`: every arm with its mean and its confidence sequence, the best first."""
    alpha = share_of_alpha(asked) / max(1, len(trial.players))
    order = sorted(trial.players, key=lambda player: -_mean(player))
    text = f"{type_of(asked.metric).guardrail_noun(asked.metric, None)}: " + ", ".join(
        _one(asked, player, alpha) for player in order
    )
    return f"{text}{_guardrails(asked, trial)}"


def broken_guardrail(guardrail: ExperimentGuardrail, place: int, trial: ExperimentState, index: int) -> str:
    """`guardrail calm: error rate of a 0.2 vs 0.03 of stable over 212 episodes, worse by more than 0.02`."""
    player, judged, base = trial.players[index], *(trial.players[arm].guards[place].judged for arm in (index, 0))
    value, other = (in_unit(guardrail, counts.total / counts.n) for counts in (judged, base))
    numbers = f"{_noun(guardrail, trial, place)} of {player.name} {number(value)} vs {number(other)} of stable"
    limit = f"worse by more than {number(guardrail.max_drop)}"
    return f"guardrail {guardrail.name}: {numbers} over {int(judged.n)} episodes, {limit}"


def _noun(guardrail: ExperimentGuardrail, trial: ExperimentState, place: int) -> str:
    return type_of(guardrail).guardrail_noun(guardrail, trial.players[0].guards[place].measure)


def _guardrails(asked: AnyExperiment, trial: ExperimentState) -> str:
    """Names unproven guardrails of the arms that still play; "" without guardrails."""
    bar, open_ones = bars(asked), []
    for player in trial.players[1:]:
        if player.standing == "playing":
            open_ones += [
                f"{guardrail.name} of {player.name}"
                for guardrail, guard in zip(asked.guardrails, player.guards, strict=False)
                if standing(guard, bar) == "unproven"
            ]
    if not asked.guardrails:
        return ""
    return f"; guardrails unproven: {', '.join(open_ones)}" if open_ones else "; every guardrail holds"


def _one(asked: AnyExperiment, player: Player, alpha: float) -> str:
    judged = player.tally.judged
    if player.standing == "withdrawn":
        return f"{player.name} withdrawn"
    if judged.n <= 0.0:
        return f"{player.name} not compared yet"
    low, high = sorted(in_unit(asked.metric, end) for end in mean_interval(judged, alpha))
    mean = in_unit(asked.metric, judged.total / judged.n)
    beaten = ", beaten" if player.standing == "beaten" else ""
    return f"{player.name} {number(mean)} [{number(low)}, {number(high)}] over {int(judged.n)} episodes{beaten}"


def _mean(player: Player) -> float:
    judged = player.tally.judged
    return judged.total / judged.n if judged.n > 0.0 else -1.0


# What one look takes from the evidence of an experiment: arms that break their bars or are proven worse leave.
#
# Whatever an experiment is part of, its arms are watched here; who has won, and what follows, is decided elsewhere. The
# arms of a rollout (stable, and the canary of a step) are withdrawn by the rollout, for which the same bars hold.


def watched(
    snapshot: Snapshot, state: State, asked: AnyExperiment, trial: ExperimentState
) -> tuple[ExperimentState, tuple[str, ...]]:
    """The experiment after this look, and what is said of the arms that had to go."""
    trial, left = _departed(snapshot, state, trial)
    if trial.phase == "Starting" or snapshot.evidence.unavailable:
        return trial, left
    if seconds_since(trial.started_at, snapshot.now) < SHORTEST:
        return trial, left
    trial, more = _looked(snapshot, state, asked, trial)
    return trial, (*left, *more)


def exhausted(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> str:
    """The limit that the experiment has reached; "" for none, and without evidence."""
    if snapshot.evidence.unavailable:
        return ""
    if sum(player.tally.judged.n for player in trial.players) >= asked.max_episodes:
        return f"{asked.max_episodes} episodes"
    over = seconds_since(trial.started_at, snapshot.now) >= asked.max_seconds
    return f"{asked.max_seconds} s" if over else ""


def racing(trial: ExperimentState) -> frozenset[int]:
    return frozenset(index for index, player in enumerate(trial.players) if player.standing == "playing")


def _looked(
    snapshot: Snapshot, state: State, asked: AnyExperiment, trial: ExperimentState
) -> tuple[ExperimentState, tuple[str, ...]]:
    """The experiment after a look at the evidence, and what is said of the arms that had to go."""
    text = []
    for index, player in enumerate(trial.players):
        why = (
            breach(snapshot, player, len(trial.players) - trial.hosts)
            if index >= trial.hosts and player.standing == "playing"
            else ""
        )
        if why:
            trial = trial.with_player(index, player.out("withdrawn", why, snapshot.now))
            text.append(f"{player.name} withdrawn: {why}")
    if trial.phase != "Running":
        return trial, tuple(text)
    playing = [player.model.revision for player in trial.challengers()]
    if not is_steady(snapshot, replace(state, experiment=trial), *playing):
        return trial.begun_anew(), tuple(text)
    trial, broken = _guarded(snapshot, asked, trial)
    text += broken
    counted = tuple(counts(snapshot, asked.metric, player) for player in trial.players)
    tallies = experiment_evidence.look(tuple(player.tally for player in trial.players), counted)
    players = [replace(player, tally=tally) for player, tally in zip(trial.players, tallies, strict=True)]
    trial = replace(trial, players=tuple(players))
    enough, mute = _enough(asked, trial), silences(snapshot, asked, trial)
    able = frozenset(index for index in range(len(players)) if index not in mute and fit(asked, trial, index))
    beaten = experiment_evidence.beaten_by(tallies, racing(trial), enough, asked.min_episodes, able)
    for loser, winner in beaten.items():
        why = f"beaten by {players[winner].name}"
        trial = trial.with_player(loser, trial.players[loser].out("beaten", why, snapshot.now))
        text.append(f"{players[loser].name} {why}")
    return trial, tuple(text)


def _guarded(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> tuple[ExperimentState, list[str]]:
    """The experiment after its guardrails have taken this look, without the arms that break one."""
    bar, text = experiment_evidence.bars(asked), []
    for place, guardrail in enumerate(asked.guardrails):
        measure = measured(snapshot, guardrail, trial, place)
        if measure is None:
            continue
        counted = tuple(counts(snapshot, guardrail, player, measure) for player in trial.players)
        first, *others = (player.guards[place] for player in trial.players)
        recorded = (replace(first, measure=measure) if counted[0] is not None else first, *others)
        for index, guard in enumerate(
            experiment_evidence.look_at_guards(recorded, counted, experiment_evidence.drop_of(guardrail), bar)
        ):
            player = trial.players[index]
            guards = (*player.guards[:place], guard, *player.guards[place + 1 :])
            trial = trial.with_player(index, replace(player, guards=guards))
            if index and player.standing == "playing" and experiment_evidence.standing(guard, bar) == "broken":
                why = broken_guardrail(guardrail, place, trial, index)
                trial = trial.with_player(index, trial.players[index].out("withdrawn", why, snapshot.now))
                text.append(f"{player.name} withdrawn: {why}")
    return trial, text


def fit(asked: AnyExperiment, trial: ExperimentState, index: int) -> bool:
    """Whether the arm may beat another: stable may, and an arm that is proven to keep every guardrail."""
    bar = experiment_evidence.bars(asked)
    return not index or all(
        experiment_evidence.standing(guard, bar) == "holds" for guard in trial.players[index].guards
    )


def _enough(asked: AnyExperiment, trial: ExperimentState) -> float:
    return experiment_evidence.bar(len(trial.players), experiment_evidence.share_of_alpha(asked))


def back_in_race(asked: AnyExperiment, trial: ExperimentState) -> ExperimentState:
    """Stable races again when no arm is left that is proven better: the one that beat it has been withdrawn."""
    tallies, enough = tuple(player.tally for player in trial.players), _enough(asked, trial)
    stable, left = trial.players[0], racing(trial)
    if stable.standing != "beaten" or any(experiment_evidence.proven(tallies, index, 0, enough) for index in left):
        return trial
    return trial.with_player(0, replace(stable, standing="playing", message=""))


def _departed(snapshot: Snapshot, state: State, trial: ExperimentState) -> tuple[ExperimentState, tuple[str, ...]]:
    """Arms whose own counters break a bound beyond doubt, and arms that lost their pods for good."""
    text = []
    for index, player in enumerate(trial.players):
        live = world(snapshot, player.model.revision)
        counted = player.observed(live, snapshot.now)
        trial = trial.with_player(index, counted)
        why = _gone(snapshot, state, counted) if index >= trial.hosts and player.standing == "playing" else ""
        if why:
            trial = trial.with_player(index, counted.out("withdrawn", why, snapshot.now))
            text.append(f"{player.name} withdrawn: {why}")
    return trial, tuple(text)


def _gone(snapshot: Snapshot, state: State, player: Player) -> str:
    if gross := gross_breach(snapshot, state, player.model.revision, player.name):
        return gross
    live, deadline = world(snapshot, player.model.revision), snapshot.spec.rollout.progress_deadline_seconds
    if hopeless(live):
        return f"its pod gave up after {live.restarts} starts: {live.message}"
    if not player.ready and seconds_since(player.since, snapshot.now) >= deadline:
        return f"its pods were not ready within {deadline} s: {live.message or 'they gave no reason'}"
    return ""


# Withdrawals of an experiment's guests that were written where users feel them, and whose status was not.
#
# The operator takes them into the state before it decides anything else. A person's order, a missing model or a
# Prometheus that does not answer must not give a guest its share back.


def guests_out(trial: ExperimentState | None) -> WithdrawnGuests | None:
    """The note for the route; None while no guest has left a split that users have had."""
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
    text = {guest.revision: guest for guest in out.guests if guest.revision not in route.weights}
    for index in _playing(trial):
        player = trial.players[index]
        if guest := text.get(player.model.revision):
            trial = trial.with_player(index, player.out(guest.standing, guest.message, snapshot.now))
    return trial


def _by_table(snapshot: Snapshot, trial: ExperimentState) -> ExperimentState:
    live, recorded = snapshot.routing.table, snapshot.before.routing_generation
    if live is None or recorded is None or live.generation <= recorded:
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
