"""obp's estimators of a policy's click rate, by the same halves of a log: `PYTHON FILE.npz RESAMPLES`, as JSON.

This runs in an environment of its own; obp's regression model is fitted to the half that proves nothing.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    InverseProbabilityWeighting,
    OffPolicyEvaluation,
    RegressionModel,
    SelfNormalizedDoublyRobust,
    SelfNormalizedInverseProbabilityWeighting,
)
from sklearn.linear_model import LogisticRegression

ESTIMATORS = (
    InverseProbabilityWeighting,
    SelfNormalizedInverseProbabilityWeighting,
    DirectMethod,
    DoublyRobust,
    SelfNormalizedDoublyRobust,
)


def main() -> None:
    """Print, by estimator, the share of intervals that cover the truth, and their mean width."""
    warnings.simplefilter("ignore")
    log = np.load(sys.argv[1])
    covered: dict[str, list[bool]] = {}
    width: dict[str, list[float]] = {}
    for seed in range(int(sys.argv[2])):
        drawn = np.random.default_rng(seed).permutation(len(log["action"]))
        for name, one in intervals(log, *np.array_split(drawn, 2)).items():
            low, high = one["95.0% CI (lower)"], one["95.0% CI (upper)"]
            covered.setdefault(name, []).append(bool(low <= log["truth"] <= high))
            width.setdefault(name, []).append(high - low)
    figures = {name: {"covered": np.mean(covered[name]), "mean_width": np.mean(width[name])} for name in covered}
    print(json.dumps({"obp": figures}))


def intervals(log: Any, proof: Any, others: Any) -> Any:
    """Intervals of obp by its bootstrap."""
    actions, places = log["probability"].shape[1], log["probability"].shape[0]
    model = RegressionModel(
        n_actions=actions,
        len_list=places,
        action_context=np.eye(actions),
        base_model=LogisticRegression(max_iter=1000),
    )
    model.fit(
        context=log["context"][others],
        action=log["action"][others],
        reward=log["click"][others],
        pscore=log["propensity"][others],
        position=log["position"][others],
    )
    feedback = {
        "n_rounds": len(proof),
        "n_actions": actions,
        "action": log["action"][proof],
        "position": log["position"][proof],
        "reward": log["click"][proof],
        "pscore": log["propensity"][proof],
        "context": log["context"][proof],
    }
    evaluation = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=[each() for each in ESTIMATORS])
    return evaluation.estimate_intervals(
        action_dist=np.tile(log["probability"].T, (len(proof), 1, 1)),
        estimated_rewards_by_reg_model=model.predict(context=log["context"][proof]),
        n_bootstrap_samples=1000,
        random_state=1,
    )


if __name__ == "__main__":
    main()
