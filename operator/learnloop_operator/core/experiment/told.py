"""An experiment in one sentence."""

from learnloop_api.kinds.experiment import Experiment
from learnloop_operator.core.experiment.state import Player, Trial, in_unit
from learnloop_operator.core.rollout.evidence import number
from learnloop_operator.core.sequential.interval import mean_interval

NOUN = {"success": "success rate", "return": "return", "errors": "error rate"}


def standings(asked: Experiment, trial: Trial) -> str:
    """`success rate of b 71 % …`: every arm with its mean and its confidence sequence, the best first."""
    alpha = asked.alpha / max(1, len(trial.players))
    order = sorted(trial.players, key=lambda player: -_mean(player))
    return f"{NOUN[asked.metric.type]}: " + ", ".join(_one(asked, player, alpha) for player in order)


def _one(asked: Experiment, player: Player, alpha: float) -> str:
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
