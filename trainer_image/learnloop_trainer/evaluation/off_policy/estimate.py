"""Estimate of a policy's return from the log alone: a verdict with an interval, or a reason against one."""

from dataclasses import dataclass

import numpy as np
import torch

from learnloop_environments.base import ActionSpace
from learnloop_trainer.evaluation.off_policy.doubly_robust import LEAST_EFFECTIVE, Corrected, Terms, correct
from learnloop_trainer.evaluation.off_policy.fitted_q import Floats, LoggedSteps, fit, recording_action
from learnloop_trainer.recordings import Target

UPDATES = 2000
LEAST_EPISODES = 50
WIDEST = 0.25
"""Half of an interval that still says something, as a share of the range of the logged returns."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate and its verdict."""

    returns: Floats  # [episodes], discounted, of the logged episodes that the estimate is made of
    corrected: Corrected | None = None
    model: float = 0.0  # the model's own word, corrected by nothing
    refused: str = ""  # why a verdict is missing

    @property
    def verdict(self) -> bool:
        """Whether the interval may be believed and says something."""
        return self.corrected is not None and not self.refused


def evaluate(
    policy: Target,
    proof: LoggedSteps,
    others: LoggedSteps,
    space: ActionSpace,
    discount: float,
    seed: int,
    device: torch.device,
    updates: int = UPDATES,
) -> Estimate:
    """The discounted return of `policy` in episodes like those logged.

    `proof`: whole episodes that nothing was learned from, neither the policy nor the model. `others`: those that the
    model is fitted to.
    """
    recording, returns = proof.recording, proof.returns_to_go(discount)[:, 0]
    if proof.episodes < LEAST_EPISODES:
        return Estimate(
            returns, refused=f"{proof.episodes} logged episodes to judge by, {LEAST_EPISODES} are the least"
        )
    if not np.isfinite(recording.log_prob).all():
        fix = "record it, as the policy server and the SDK do where actions are drawn"
        return Estimate(returns, refused=f"steps without the log-probability of their action: {fix}")
    action = recording_action(recording.action, space)
    log_ratio = policy.log_probability(recording.observation, action) - recording.log_prob
    if np.isnan(log_ratio).any():
        fix = "set export.behaviour: {kind: sampled}, so that the policy's actions have a density"
        return Estimate(returns, refused=f"the policy's actions cannot be compared with the logged ones: {fix}")
    ratio = np.exp(np.minimum(log_ratio, 50.0))
    model = fit(others, policy, space, discount, updates, seed, device)
    value = model.value(recording.observation, policy.mixture(recording.observation), proof.age)
    terms = Terms(
        proof.table(ratio, 1.0),
        proof.table(recording.reward, 0.0),
        proof.table(model.taken(recording.observation, action, proof.age), 0.0),
        proof.table(value, 0.0),
        proof.table(np.ones(len(value)), 0.0),
    )
    to_come = _to_come(proof, others, discount)
    corrected = correct(terms, to_come, discount, seed)
    refused = _refusal(corrected, _range(proof, others, to_come), proof.longest)
    return Estimate(returns, corrected, float(terms.value[:, 0].mean()), refused)


def _range(proof: LoggedSteps, others: LoggedSteps, to_come: Floats) -> float:
    """Range of the returns; their size where all rewards are the same."""
    same = len({*proof.recording.reward.tolist(), *others.recording.reward.tolist()}) == 1
    return float(np.abs(to_come).max() if same else np.ptp(to_come))


def _refusal(found: Corrected, wide: float, longest: int) -> str:
    if not found.steps:
        why = f"the weights of the first step speak for fewer than {LEAST_EFFECTIVE:g} episodes"
        return f"the policy does what was hardly ever logged: {why}; log more episodes that explore"
    half, most = (found.high - found.low) / 2, WIDEST * wide
    if half > most:
        return (
            f"the interval is too wide, ±{half:.3g} where ±{most:.3g} would say something: the weights correct "
            f"{found.steps} of {longest} steps, the rest is the model's word; log more episodes, or by policies nearer"
        )
    return ""


def _to_come(proof: LoggedSteps, others: LoggedSteps, discount: float) -> Floats:
    """Returns to go of all logged episodes, as long as the longest that proves."""
    tables, longest = [one.returns_to_go(discount) for one in (proof, others)], proof.longest
    cut = [np.pad(table, ((0, 0), (0, max(0, longest - table.shape[1]))))[:, :longest] for table in tables]
    return np.concatenate(cut)
