"""Signs that a reward is being gamed, read from the newest rewards of a policy. Pure; each names its worst episodes.

They are suspicions with evidence, not verdicts: an agent that earns by one component alone, that repeats one episode,
or that pleases the policy more the less it pleases people (A. Pan, K. Bhatia & J. Steinhardt, ICLR 2022).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_api.wire.reward import RewardSignals
from learnloop_dataplane.rewards.rank_statistics import Floats, percentiles, spearman

FEWEST = 100  # rewards below which nothing is said
FEWEST_FEEDBACK = 30
DOMINANCE = 0.95  # share of the variation of the rewards that one component may explain
DUPLICATES = 0.2  # share of the episodes that may be exact repetitions of another
WORST = 3
ERRS = 0.05  # chance that feedback which has nothing to do with the rewards is ever called against them


@dataclass(frozen=True)
class Rewarded:
    """One reward and what is compared with it.

    Attributes:
        components: values before weighting, by name.
        fingerprint: equal for episodes with exactly the same steps; None where they are gone.
        feedback: what people said of the episode; None where nobody did.
    """

    trajectory_id: str
    components: dict[str, float]
    reward: float
    fingerprint: str | None
    feedback: float | None


@dataclass(frozen=True)
class Sign:
    """One finding and the episodes that show it best, worst first."""

    reason: Literal["FeedbackDisagrees", "DuplicateTrajectories", "ComponentDominates"]
    sentence: str
    worst: tuple[str, ...]


def read_signals(spec: RewardPolicySpec, rewards: Sequence[Rewarded]) -> RewardSignals:
    """The gravest sign in these rewards, or that there is none."""
    count = len(rewards)
    if count < FEWEST:
        sentence = f"fewer than {FEWEST} rewards so far, too few to look for signs of reward hacking"
        return RewardSignals(suspected=None, reason="NotEnoughRewards", sentence=sentence, rewards=count)
    checks = (_disagrees(spec, rewards), _repeats(rewards), _dominates(spec, rewards))
    found = next((sign for sign in checks if sign is not None), None)
    if found is None:
        sentence = "no sign of reward hacking in the newest rewards"
        return RewardSignals(suspected=False, reason="NothingFound", sentence=sentence, rewards=count)
    return RewardSignals(
        suspected=True, reason=found.reason, sentence=found.sentence, rewards=count, worst=list(found.worst)
    )


def _disagrees(spec: RewardPolicySpec, rewards: Sequence[Rewarded]) -> Sign | None:
    """The rewards without their feedback part against the feedback: a correlation that is surely below 0."""
    rated = [item for item in rewards if item.feedback is not None]
    if len(rated) < FEWEST_FEEDBACK:
        return None
    rest = [component for component in spec.components if not _is_feedback(component)]
    proxy = np.array([math.fsum(c.weight * item.components.get(c.name, 0.0) for c in rest) for item in rated])
    feedback = np.array([item.feedback for item in rated], dtype=np.float64)
    correlation = spearman(proxy, feedback)
    if correlation is None:
        return None
    # Fisher's transformation; 1.06 is the variance factor for ranks (E. Fieller, H. Hartley & E. Pearson, 1957).
    spread = math.sqrt(1.06 / (len(rated) - 3))
    if math.atanh(max(-0.999999, min(0.999999, correlation))) + _always_valid(len(rated)) * spread >= 0:
        return None
    sentence = f"what the other components reward, people dislike: rank correlation {correlation:.2f} with feedback"
    return Sign(
        "FeedbackDisagrees",
        f"{sentence} over {len(rated)} rated episodes",
        _worst(rated, percentiles(proxy) - percentiles(feedback)),
    )


def _always_valid(n: int) -> float:
    """Standard deviations that the mean of n values strays by at any of all looks with the chance ERRS only, on one
    side: the normal mixture (H. Robbins, 1970), tightest from FEWEST_FEEDBACK values on."""
    growth = (n + FEWEST_FEEDBACK) / FEWEST_FEEDBACK
    return math.sqrt((1.0 + FEWEST_FEEDBACK / n) * math.log(growth / (2.0 * ERRS) ** 2))


def _repeats(rewards: Sequence[Rewarded]) -> Sign | None:
    """Exact repetitions of an episode that are many and pay at least as well as the rest."""
    sizes = Counter(item.fingerprint for item in rewards if item.fingerprint is not None)
    repeated = [item for item in rewards if item.fingerprint is not None and sizes[item.fingerprint] > 1]
    share = sum(size - 1 for size in sizes.values()) / len(rewards)
    if share < DUPLICATES:
        return None
    mean, mean_repeated = (math.fsum(i.reward for i in some) / len(some) for some in (rewards, repeated))
    if mean_repeated < mean:
        return None
    order = np.array([sizes[item.fingerprint or ""] for item in repeated], dtype=np.float64)
    sentence = f"{share:.0%} of the episodes repeat another one exactly and earn as well as the rest"
    return Sign("DuplicateTrajectories", sentence, _worst(repeated, order))


def _dominates(spec: RewardPolicySpec, rewards: Sequence[Rewarded]) -> Sign | None:
    """One component that is not the goal explains nearly all the variation, at a weight of less than that. It also
    outweighs all the others together, or is earned without the goal.

    That one component varies and the others do not is no sign by itself: an agent that masters its task varies in
    efficiency only, one whose episodes are all alike in success only.
    """
    values = {c.name: np.array([item.components.get(c.name, 0.0) for item in rewards]) for c in spec.components}
    parts = {component.name: component.weight * values[component.name] for component in spec.components}
    total = sum(parts.values(), start=np.zeros(len(rewards)))
    variance = float(np.var(total))
    if variance <= 1e-12 * max(1.0, float(np.mean(total)) ** 2):
        return None
    for component in spec.components:
        part = parts[component.name]
        share = float(np.mean((part - part.mean()) * (total - total.mean()))) / variance
        if _is_goal(component) or not component.weight < DOMINANCE <= share:
            continue
        if how := _without_the_goal(spec, values, part):
            sentence = f"component {component.name} alone explains {share:.0%} of the rewards' variation"
            sentence += f" at a weight of {component.weight:.0%}, {how}"
            others = total - part
            return Sign("ComponentDominates", sentence, _worst(rewards, percentiles(part) - percentiles(others)))
    return None


def _without_the_goal(spec: RewardPolicySpec, values: Mapping[str, Floats], part: Floats) -> str | None:
    """What is wrong with a component that dominates; None: nothing."""
    if float(np.ptp(part)) > 1.0:
        return "by values beyond its scale"
    goals = [component for component in spec.components if _is_goal(component)]
    successes = [values[component.name] for component in goals if component.type == "success"]
    if successes:
        share = float(np.mean(successes))
        return f"with {share:.0%} successes" if share < 0.5 else None
    reached = sum((component.weight * values[component.name] for component in goals), start=np.zeros(len(part)))
    correlation = spearman(part, reached)
    if correlation is None or correlation > 0:
        return None
    return f"and the less is reached (rank correlation {correlation:.2f})"


def _is_goal(component: RewardComponent) -> bool:
    """What the agent is there for; the other components only say how."""
    return component.type in ("success", "environment") or _is_feedback(component)


def _is_feedback(component: RewardComponent) -> bool:
    return component.type == "feedback" or component.key == "feedback"


def _worst(rewards: Sequence[Rewarded], badness: Floats) -> tuple[str, ...]:
    """Ids of the worst, of equals those with the highest reward."""
    order = sorted(range(len(rewards)), key=lambda i: (-badness[i], -rewards[i].reward, rewards[i].trajectory_id))
    return tuple(rewards[index].trajectory_id for index in order[:WORST])
