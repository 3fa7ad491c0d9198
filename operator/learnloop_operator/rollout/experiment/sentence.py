"""An experiment in one sentence."""

from learnloop_api.kinds.rollouts.experiment import AnyExperiment, ExperimentGuardrail
from learnloop_operator.rollout.checks.guardrails import bars, share_of_alpha, standing
from learnloop_operator.rollout.evidence.arm_evidence import number
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.rollout.model.experiment_state import ExperimentState, Player, in_unit
from learnloop_operator.statistics.interval import mean_interval


def standings(asked: AnyExperiment, trial: ExperimentState) -> str:
    """`success rate of b 71 % …`: every arm with its mean and its confidence sequence, the best first."""
    alpha = share_of_alpha(asked) / max(1, len(trial.players))
    order = sorted(trial.players, key=lambda player: -_mean(player))
    said = f"{type_of(asked.metric).guardrail_noun(asked.metric, None)}: " + ", ".join(
        _one(asked, player, alpha) for player in order
    )
    return f"{said}{_guardrails(asked, trial)}"


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
    """What is not proven yet of the arms that still play; "" without guardrails."""
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
