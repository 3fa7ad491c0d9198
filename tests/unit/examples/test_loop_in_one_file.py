"""The loop in one file turns, and its verdicts are those of the operator."""

import random
import runpy
from pathlib import Path

from learnloop_operator.statistics.canary_against_stable import LookMemory, Pair, bars, look, proven
from learnloop_operator.statistics.e_values import Counts

FILE = Path(__file__).resolve().parents[3] / "examples" / "loop_in_one_file.py"
LOOP = runpy.run_path(str(FILE))
WORDS = {"fine": "pass", "worse": "roll back", "undecided": "hold"}


def test_it_promotes_what_learned_and_rolls_back_what_is_broken() -> None:
    """Chance succeeds in one episode of fifty."""
    for seed in range(3):
        end = LOOP["main"](seed=seed)
        assert end["serves"] not in ("v0", "broken")
        assert end["success"] > 0.6


def test_its_verdicts_are_the_operators_in_a_thousand_random_rollouts() -> None:
    """At every look, for random rates, shares of the canary, tolerated drops and error budgets."""
    ends = []
    for seed in range(1000):
        dice = random.Random(seed)
        max_drop, alpha, share = dice.uniform(0.02, 0.3), dice.choice([0.001, 0.01, 0.05]), dice.uniform(0.05, 0.9)
        stable_rate = dice.random()
        canary_rate = min(1.0, max(0.0, stable_rate + dice.gauss(0.0, 0.2)))
        evidence, bar = LOOP["Evidence"](max_drop, alpha), bars(alpha)
        memory = look(LookMemory(), Pair(), max_drop, bar)
        total = Pair()
        for _ in range(40):
            canary = _arm(dice, dice.randrange(1 + int(60 * share)), canary_rate)
            stable = _arm(dice, dice.randrange(1 + int(60 * (1 - share))), stable_rate)
            evidence.add(LOOP["Arm"](canary.n, canary.total), LOOP["Arm"](stable.n, stable.total))
            total = total.plus(Pair(canary, stable))
            memory = look(memory, total, max_drop, bar)
            assert evidence.verdict == WORDS[proven(memory, bar)]
            if evidence.verdict != "hold":
                break
        ends.append(evidence.verdict)
    assert min(map(ends.count, ("pass", "roll back", "hold"))) > 50


def _arm(dice: random.Random, episodes: int, rate: float) -> Counts:
    return Counts(float(episodes), float(sum(dice.random() < rate for _ in range(episodes))))
