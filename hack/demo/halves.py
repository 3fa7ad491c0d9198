"""Both halves of the story, and what they must show: a policy gets better, and a bad one is rolled back."""

from demo import bad_model, learning
from demo.api import Api
from demo.narrator import Narrator
from demo.settings import Settings
from demo.story import Figures, require

BASELINE_AT_MOST = 30.0
LONGEST = 500
"""Steps of an episode of CartPole-v1, each worth 1."""
PROMOTED_AT_LEAST = 0.8
CANARY_SHARE = 10


def both_halves(api: Api, settings: Settings, narrator: Narrator, longest: int = LONGEST) -> Figures:
    """Raises StoryFailedError where a part did not happen, and never over how long it took: the machine may be busy."""
    learned = learning.watch_it_learn(api, settings, narrator)
    require(learned.baseline_return <= BASELINE_AT_MOST, f"baseline return {learned.baseline_return:.1f} is above 30")
    least = PROMOTED_AT_LEAST * longest
    require(learned.promoted_return >= least, f"promoted return {learned.promoted_return:.1f} is below {least:.0f}")
    back = bad_model.watch_it_come_back(api, settings, narrator, learned.model_uri, learned.model_sha256)
    require(back.max_weight <= CANARY_SHARE, f"the sabotaged model had {back.max_weight} % of the episodes")
    require(back.max_share * 100 <= CANARY_SHARE, f"the sabotaged model saw {back.max_share:.1%} of the episodes")
    bad_model.restore(api, settings)
    narrator.chapter("Where everything came from")
    print(api.run("get", "-n", settings.namespace, "learningagents,trainingjobs,modeldeployments,rewardpolicies"))
    return {
        "baseline_return": round(learned.baseline_return, 1),
        "promoted_return": round(learned.promoted_return, 1),
        "training_workers": learned.training_workers,
        "loop_seconds": round(learned.loop_seconds, 1),
        "bad_model_max_weight": back.max_weight,
        "bad_model_max_share": round(back.max_share, 4),
        "bad_model_rollback_seconds": round(back.rollback_seconds, 1),
    }
