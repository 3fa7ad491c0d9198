"""Models at the gate: bad ones at random rates, ones at the very limit, and ones that are as good as what serves."""

import random
from collections import Counter
from typing import Any

from bench.gates.gate import FAULTS, SUITES, Gate
from bench.gates.model_server import arm_name
from learnloop_operator.statistics.fixed_sample_bounds import rate_upper
from testing.servers.language_candidate import Candidate

GOOD = arm_name("", 0.0, 0)
WORSE = (1.8, 6.0)
"""Times the limit: how bad the bad ones are."""
HEALTHY = 0.1
"""Times the limit: how often a good one errs at most."""
MOST_FALSE = 0.05


def limit_of(fault: str) -> float:
    """The rate of this fault that its suite allows; of `wordy` the share of long answers that costs as much."""
    suite = SUITES[FAULTS[fault]]
    limit = float(next(suite[key] for key in ("maxRate", "maxGap", "nonInferiority") if key in suite))
    return limit * 512 / 192 if fault == "wordy" else limit  # a wordy answer has 200 tokens, a good one 8, of 512


def bad(gate: Gate, each: int, seed: int) -> dict[str, Any]:
    """Each fault, `each` times, at rates above the limit, over the network."""
    draws = random.Random(seed)
    stopped: Counter[str] = Counter()
    passed = []
    for fault, builtin in FAULTS.items():
        for number in range(each):
            share = min(0.9, limit_of(fault) * draws.uniform(*WORSE))
            verdict = gate.verdict(builtin, arm_name(fault, share, seed * 1000 + number), GOOD)
            stopped[fault] += verdict.verdict == "failed"
            if verdict.verdict != "failed":
                passed.append(f"{fault} at {share:.3f}: {verdict.message}")
    missed = [f"{fault}: {stopped[fault]} of {each} were stopped" for fault in FAULTS if stopped[fault] < each]
    return {"each": each, "stopped": dict(stopped), "passed": passed, "missed": missed}


def at_the_limit(gate: Gate, each: int, seed: int) -> dict[str, Any]:
    """Rates at the limit itself: a bound at 95 % lets one of twenty through. The models are in this process."""
    passed: Counter[str] = Counter()
    for fault, builtin in FAULTS.items():
        for number in range(each):
            name = arm_name(fault, limit_of(fault), 500_000 + seed * 1000 + number)
            models = (Candidate(fault, limit_of(fault), 500_000 + seed * 1000 + number), Candidate())
            passed[fault] += gate.verdict_here(builtin, name, models).verdict == "passed"
    total, through = each * len(FAULTS), sum(passed.values())
    least = 1.0 - rate_upper(total - through, total, 0.975) if total else 0.0
    missed = [f"{through} of {total} at the limit passed"] if least > MOST_FALSE else []
    return {"asked": total, "passed": through, "by_fault": dict(passed), "missed": missed}


def same(gate: Gate, gates: int, seed: int) -> dict[str, Any]:
    """A/A: candidate and serving model err equally often, each for itself, at all nine suites. A gate blocks when one
    of its suites does."""
    draws = random.Random(seed)
    blocked, why = 0, []
    for number in range(gates):
        reasons = []
        for fault, builtin in FAULTS.items():
            share = limit_of(fault) * draws.uniform(0.0, HEALTHY)
            models = (Candidate(fault, share, 2 * number + seed * 1000), Candidate(fault, share, 2 * number + 1))
            verdict = gate.verdict_here(builtin, arm_name(fault, share, number), models)
            if verdict.verdict != "passed":
                reasons.append(f"{builtin}: {verdict.message}")
        blocked += bool(reasons)
        why += reasons
    missed = [f"{blocked} of {gates} identical models were blocked"] if blocked > MOST_FALSE * gates else []
    return {"gates": gates, "suites": gates * len(FAULTS), "blocked": blocked, "why": why[:20], "missed": missed}
