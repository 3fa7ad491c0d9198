"""What becomes of the policy where it was not trained: unseen episodes, and every other level of difficulty.

The reference are episodes with training's own seeds; the gap between the two is the usual measure of overfitting
(Cobbe et al., 2019, "Quantifying Generalization in Reinforcement Learning", arXiv 1812.02341).
"""

from learnloop_environments import Conditions
from learnloop_environments.randomness import Split
from learnloop_trainer.evaluation.held_out_episodes import nominal, sample
from learnloop_trainer.evaluation.suite.stage import Finding, Stage


def measure(stage: Stage) -> Finding:
    """Conditions: unseen episodes at the level evaluated, then the other levels."""
    usual = nominal(stage.order).level
    levels = [level.name for level in getattr(sample(stage.order), "LEVELS", ())]
    others = [name for name in levels if name != (usual or levels[0])]
    pairs = [stage.both(), *(stage.both(Conditions(level=name)) for name in others)]
    seen = stage.play(stage.policy, 0, split=Split.TRAINING)
    conditions = ["unseen episodes", *(f"level {name}" for name in others)]
    return Finding(conditions, [a for a, _ in pairs], [b for _, b in pairs], [seen], "episodes with training's seeds")
