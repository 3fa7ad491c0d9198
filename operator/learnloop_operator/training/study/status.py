"""A study in a status and in one sentence."""

import json
from collections import Counter
from typing import Any

from learnloop_api.wire.study import Trial
from learnloop_operator.training.study.snapshot import StudySnapshot, trial_name

DIGITS = 4


def fields(world: StudySnapshot) -> dict[str, Any]:
    """What a study adds to its TrainingJob's status."""
    trials = world.state.trials if world.state else []
    counts: Counter[str] = Counter(trial.state for trial in trials)
    best = best_trial(world)
    study: dict[str, Any] = {
        "trials": len(trials),
        "running": counts["running"],
        "completed": counts["complete"],
        "pruned": counts["pruned"],
        "failed": counts["failed"],
    }
    text = None
    if best is not None and best.value is not None:
        study |= {
            "bestTrial": trial_name(world.name, best.number),
            "bestValue": round(best.value, DIGITS),
            "bestParameters": words(best),
        }
        text = f"best {best.value:.1f}"
    done = len(trials) - counts["running"]
    return {"study": study, "progress": f"{100 * done // world.study.trials}%", "return": text}


def sentence(world: StudySnapshot) -> str:
    """e.g. 5 of 20 trials done (1 pruned), 2 running; best 487.2: t-3 with hidden [64, 64]"""
    trials = world.state.trials if world.state else []
    counts: Counter[str] = Counter(trial.state for trial in trials)
    best = best_trial(world)
    done = len(trials) - counts["running"]
    aside = ", ".join(f"{counts[state]} {state}" for state in ("pruned", "failed") if counts[state])
    text = f"{done} of {world.study.trials} trials done{f' ({aside})' if aside else ''}, {counts['running']} running"
    if best is None or best.value is None:
        return text
    return f"{text}; best {best.value:.1f}: {trial_name(world.name, best.number)} with {words(best)}"[:1024]


def best_trial(world: StudySnapshot) -> Trial | None:
    """The best complete trial so far."""
    state = world.state
    return None if state is None or state.best is None else state.trials[state.best]


def words(trial: Trial) -> str:
    """Hyperparameters for a human, e.g. learningRate 0.003, hidden [64, 64]."""
    shown = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {json.dumps(value)}"
        for name, value in sorted(trial.parameters.items())
    )
    return ", ".join(shown)[:1024]
