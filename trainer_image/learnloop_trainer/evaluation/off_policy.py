"""Estimate of a policy's return from the log alone: a verdict with an interval, or a reason against one.

Importance weights correct the fitted model, as far as they reach.
Per-decision, weighted doubly robust (Jiang & Li, 2016, arXiv 1511.03722; Thomas & Brunskill, 2016, arXiv 1604.00923,
equation 5), with rho_t = pi(a_t|s_t) / mu(a_t|s_t), W_t = rho_0 ... rho_t and w_t = W_t over its mean:

    DR = mean of  sum_{t < h} gamma^t (w_{t-1} V(s_t) + w_t (r_t - Q(s_t, a_t)))  +  gamma^h w_{h-1} V(s_h)

Of what the model adds to the log's mean, only the share beta counts before step h that makes the estimate vary least
(Kallus & Uehara, 2019, arXiv 1906.03735): a model that has learned noise cannot make the estimate worse than none.
The interval is the wider one of two bootstraps on each side: of percentiles, and of studentised means (Hall, 1988),
which knows that a few rare rewards tell too little of how much they vary.

h is where the weights still speak for LEAST_EFFECTIVE episodes (Kish, 1965). The interval is honest about two things
that no resampling shows. From step h on, the model alone is believed; and where the mean of W_t is below 1, the policy
does what was never done in the log (or so rarely that it was not seen). Neither can be better than the best that was
ever still to come in the log, nor worse than its worst reward at every step to come: that range, by the share of
episodes concerned, is added. The least that was still to come does not bound it so: it is what policies lost that knew
something, and one that knows less loses more.
"""

from dataclasses import dataclass

import numpy as np
import torch

from learnloop_environments import randomness, spaces
from learnloop_trainer.evaluation.fitted_q import Floats, LoggedSteps, fit, recording_action
from learnloop_trainer.recordings import Target

LEAST_EFFECTIVE = 30.0
RESAMPLES = 1000
LEAST_DEVIATION = 0.5
"""Of a resample, as a share of the log's own: one without any of three rewards would have none."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Of each logged step; [episodes, longest], what comes after an episode's end as `absent` says."""

    ratio: Floats  # rho; 1 after the end
    reward: Floats  # 0 after the end
    taken: Floats  # Q of the logged action; 0 after the end
    value: Floats  # V of what was seen; 0 after the end
    mean: Floats  # the log's own mean at that step, to which the model adds; 0 after the end
    alive: Floats  # 1 where there is a step, else 0


@dataclass(frozen=True, slots=True)
class Corrected:
    """An estimate and how far it is to be trusted."""

    value: float
    low: float
    high: float
    gain: float  # over the logged episodes' own mean return
    gain_low: float
    gain_high: float
    steps: int  # corrected by weights
    effective: float  # episodes that the weights speak for, where they speak for fewest
    by_model: float  # half of the interval that the model's word costs


def effective(weights: Floats) -> Floats:
    """Kish's effective number of episodes at each step, of weights [episodes, steps]."""
    squares = np.square(weights).sum(axis=0)
    total = np.square(weights.sum(axis=0))
    return np.asarray(np.divide(total, squares, out=np.zeros(weights.shape[1]), where=squares > 0))


def correct(terms: Terms, to_come: Floats, discount: float, seed: int) -> Corrected:
    """The estimate with its 95 % interval.

    `to_come`: discounted returns from each step on of any logged episodes [m, longest].
    """
    episodes, longest = terms.ratio.shape
    weights: Floats = np.asarray(np.cumprod(terms.ratio, axis=1), dtype=np.float64)
    reach = effective(weights)
    steps = longest if (reach >= LEAST_EFFECTIVE).all() else int(np.argmin(reach >= LEAST_EFFECTIVE))
    powers: Floats = np.power(discount, np.arange(longest + 1))
    before: Floats = np.concatenate((np.ones((episodes, 1)), weights[:, :-1]), axis=1)[:, :steps]
    weights = weights[:, :steps]
    tail: Floats = terms.value[:, steps] if steps < longest else np.zeros(episodes)
    returns = (terms.reward * powers[:-1]).sum(axis=1)

    random = randomness.generator(randomness.Purpose.OFF_POLICY, seed, 2)
    counts = random.multinomial(episodes, np.full(episodes, 1.0 / episodes), RESAMPLES).astype(np.float64)
    counts = np.concatenate((np.ones((1, episodes)), counts))  # the first is the log itself

    def weighted(weight: Floats, values: Floats) -> Floats:
        """Self-normalised means of values by weights [episodes, k] over each resample; [resamples, k]."""
        total = counts @ weight
        return np.asarray(np.divide(counts @ (weight * values), total, out=np.zeros_like(total), where=total > 0))

    def centred(weight: Floats, values: Floats) -> Floats:
        """How each episode moves those means of the whole log, [episodes, k]."""
        total = weight.sum(axis=0)
        means = np.divide((weight * values).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
        moved = episodes * weight * (values - means)
        return np.asarray(np.divide(moved, total, out=np.zeros_like(moved), where=total > 0))

    mean = terms.mean[:, :steps]
    added, added_taken = terms.value[:, :steps] - mean, terms.taken[:, :steps] - mean
    last: Floats = weights[:, -1:] if steps else np.ones((episodes, 1))
    tails = weighted(last, tail[:, None])[:, 0]
    correction = weighted(before, added) - weighted(weights, added_taken)  # 0 on average, whatever the model says
    by_step = weighted(before, mean) + weighted(weights, terms.reward[:, :steps] - mean)
    beta = _least_variance(by_step @ powers[:steps] + powers[steps] * tails, correction @ powers[:steps])
    by_step += beta * correction
    worths = by_step @ powers[:steps] + powers[steps] * tails
    gains = worths - (counts @ returns) / episodes
    moves = centred(before, mean + beta * added) + centred(weights, terms.reward[:, :steps] - mean - beta * added_taken)
    moved = moves @ powers[:steps] + powers[steps] * centred(last, tail[:, None])[:, 0]

    least, best = _bounds_to_come(to_come, discount)
    reached = np.minimum(1.0, weights.mean(axis=0)) if steps else np.ones(0)
    unseen = np.maximum.accumulate(1.0 - reached) if steps else np.ones(0)
    lost = np.diff(unseen, prepend=0.0)
    # Those that leave the log at a step count as those that stay: what comes for them from there, in steps of gamma^t.
    beyond = tails[0]
    counted = (by_step[0] * powers[:steps])[::-1].cumsum()[::-1] + powers[steps] * beyond
    below = float((lost * np.clip(counted - powers[:steps] * least[:steps], 0.0, None)).sum())
    above = float((lost * np.clip(powers[:steps] * best[:steps] - counted, 0.0, None)).sum())
    if steps < longest:
        going_on = weighted(last, terms.alive[:, steps : steps + 1])[0, 0]
        share = powers[steps] * (1.0 - (unseen[-1] if steps else 0.0))
        below += float(share * max(0.0, beyond - going_on * least[steps]))
        above += float(share * max(0.0, going_on * best[steps] - beyond))

    speaking = float(reach[:steps].min()) if steps else 0.0
    # No resample has what no episode had: so often it may come all the same (Clopper & Pearson, 1934, of none).
    rare = 1.0 - 0.025 ** (1.0 / max(1.0, speaking))
    unmet = rare * (np.array((to_come[:, 0].min(), to_come[:, 0].max())) - worths[0])

    def interval(values: Floats, moved: Floats, share: float) -> tuple[float, float, float]:
        bootstraps = np.quantile(values[1:], (0.025, 0.975)), values[0] + _studentised(moved, counts[1:])
        ends = np.stack((*bootstraps, values[0] + share * unmet))
        low, high = ends[:, 0].min(), ends[:, 1].max()
        return float(values[0]), float(min(low, values[0])) - below, float(max(high, values[0])) + above

    value, low, high = interval(worths, moved, 1.0)
    differs = min(1.0, float(np.abs(weights - 1.0).max(initial=0.0)))  # what both policies do changes no gain
    gain, gain_low, gain_high = interval(gains, moved - (returns - returns.mean()), differs)
    return Corrected(value, low, high, gain, gain_low, gain_high, steps, speaking, (below + above) / 2)


def _least_variance(estimates: Floats, correction: Floats) -> float:
    """The share of a correction, over the same resamples, with which the estimates vary least; 1 where it is none."""
    estimates, correction = estimates[1:] - estimates[1:].mean(), correction[1:] - correction[1:].mean()
    varies = float(correction @ correction)
    return float(np.clip(-(estimates @ correction) / varies, 0.0, 1.0)) if varies else 1.0


def _studentised(moved: Floats, counts: Floats) -> Floats:
    """Lower and upper end of the mean of `moved`, whose mean is 0, by the bootstrap's own t."""
    episodes = len(moved)
    first, second = (counts @ np.stack((moved, np.square(moved)), axis=1) / episodes).T
    deviation = float(moved.std())
    least = LEAST_DEVIATION * deviation
    t = first / np.maximum(np.sqrt(np.maximum(second - np.square(first), 0.0)), least or 1.0)
    return np.asarray(-np.quantile(t, (0.975, 0.025)) * deviation)


def _bounds_to_come(to_come: Floats, discount: float) -> tuple[Floats, Floats]:
    """The least and the best that can still come at each step, [longest].

    An episode that ends earns 0 from there: the worst reward of a step is not above it.
    """
    best = np.maximum.accumulate(to_come.max(axis=0)[::-1])[::-1]
    least = np.minimum.accumulate(to_come.min(axis=0)[::-1])[::-1]
    reward = to_come - discount * np.pad(to_come[:, 1:], ((0, 0), (0, 1)))
    steps = np.cumsum(np.power(discount, np.arange(len(least))))[::-1]  # that a reward at every step counts for
    return np.minimum(least, min(0.0, float(reward.min())) * steps), best


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
    space: spaces.ActionSpace,
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
        proof.table(model.logged(proof.age), 0.0),
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


def _refusal(result: Corrected, wide: float, longest: int) -> str:
    if not result.steps:
        why = f"the weights of the first step speak for fewer than {LEAST_EFFECTIVE:g} episodes"
        return f"the policy does what was hardly ever logged: {why}; log more episodes that explore"
    if not wide:
        return "no logged step has a reward, so that every policy looks the same; log rewards"
    half, most = (result.high - result.low) / 2, WIDEST * wide
    if half > most:
        return (
            f"the interval is too wide, ±{half:.3g} where ±{most:.3g} would say something: the weights correct "
            f"{result.steps} of {longest} steps, the rest is the model's word; log more episodes, or by policies nearer"
        )
    return ""


def _to_come(proof: LoggedSteps, others: LoggedSteps, discount: float) -> Floats:
    """Returns to go of all logged episodes, as long as the longest that proves."""
    tables, longest = [one.returns_to_go(discount) for one in (proof, others)], proof.longest
    cut = [np.pad(table, ((0, 0), (0, max(0, longest - table.shape[1]))))[:, :longest] for table in tables]
    return np.concatenate(cut)
