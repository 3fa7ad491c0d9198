"""Losses and their gradients against references written out token by token, in float64."""

import math

import numpy as np
import pytest
import torch

from learnloop_trainer.language import losses
from learnloop_trainer.language.losses import leave_one_out, standardised, token_advantages

EXACT = 1e-6
GENERATOR = np.random.default_rng(7)
TOKENS = 64


def drawn(low: float, high: float) -> torch.Tensor:
    """Random numbers [TOKENS] in float64."""
    return torch.from_numpy(GENERATOR.uniform(low, high, TOKENS))


def checked(single: torch.Tensor, reference: list[float], slopes: list[float], at: torch.Tensor) -> None:
    """The loss is the sum of the reference, and its gradient by log-probabilities are the slopes."""
    single.backward()
    assert float(single.detach()) == pytest.approx(math.fsum(reference), abs=EXACT)
    assert np.allclose(at.grad.numpy(), slopes, atol=EXACT)


@pytest.fixture
def sample() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities of the learner, of the behaviour, advantages and weights, some ratios far from 1."""
    log_prob = drawn(-4, -0.1)
    return log_prob.requires_grad_(), log_prob.detach() + drawn(-1, 1), drawn(-2, 2), drawn(0, 0.1)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_the_policy_gradient_is_its_reference(sample: tuple[torch.Tensor, ...], kind: torch.dtype) -> None:
    log_prob, behaviour, advantage, weight = (part.detach().to(kind) for part in sample)
    log_prob.requires_grad_()
    loss = losses.policy_gradient(log_prob, behaviour, advantage, weight, 1.5)
    rho = [min(math.exp(new - old), 1.5) for new, old in zip(*(part.tolist() for part in sample[:2]), strict=True)]
    parts = zip(rho, *(part.tolist() for part in (sample[2], sample[3], sample[0])), strict=True)
    terms = [(-w * r * a * new, -w * r * a) for r, a, w, new in parts]
    checked(loss, [term for term, _ in terms], [slope for _, slope in terms], log_prob)


def test_the_clipped_surrogate_is_its_reference(sample: tuple[torch.Tensor, ...]) -> None:
    log_prob, behaviour, advantage, weight = sample
    low, high, cap = 0.2, 0.28, 1.8
    loss, clipped = losses.clipped_surrogate(log_prob, behaviour, advantage, weight, low, high, cap)
    terms, slopes, still = [], [], []
    for new, old, a, w in zip(*(part.tolist() for part in sample), strict=True):
        rho = math.exp(new - old)
        free, bound = rho * a, min(max(rho, 1 - low), 1 + high) * a
        best = min(free, bound)
        value = max(best, cap * a) if a < 0 else best
        active = value == free
        terms.append(-w * value)
        slopes.append(-w * a * rho if active else 0.0)
        still.append(0.0 if active else 1.0)
    checked(loss, terms, slopes, log_prob)
    assert clipped.tolist() == still
    assert 0 < sum(still) < TOKENS  # both cases are tried


def test_the_gradient_of_the_kl_penalty_is_that_of_the_divergence_itself() -> None:
    logits = torch.from_numpy(GENERATOR.normal(size=9)).requires_grad_()
    base = torch.log_softmax(torch.from_numpy(GENERATOR.normal(size=9)), 0)
    spread = torch.log_softmax(logits, 0)
    exact = (spread.exp() * (spread - base)).sum()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    # On-policy in the mean: every word counts as often as the policy says it.
    penalty = losses.kl_penalty(spread, base, spread.detach().exp(), torch.ones(9, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(penalty, logits)
    assert torch.allclose(gradient, wanted, atol=EXACT)
    estimate = (spread.exp() * losses.kl_estimate(spread, base)).sum()
    assert float(estimate.detach()) == pytest.approx(float(exact.detach()), abs=EXACT)


def test_a_sequence_is_rejected_by_the_geometric_mean_of_its_ratios() -> None:
    behaviour = torch.tensor([-1.0, -1.0, -1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
    log_prob = torch.tensor([-1.0, -1.1, 1.0, 1.0, -4.0, 2.0], dtype=torch.float64)
    episode = torch.tensor([0, 0, 1, 1, 2, 2])
    means = losses.geometric_means(log_prob, behaviour, episode, 4)
    assert np.allclose(means.numpy(), [math.exp(-0.05), math.exp(2.0), 1.0, 1.0], atol=EXACT)
    mask = losses.accepted(log_prob, behaviour, episode, 4, 2.0)
    assert mask.tolist() == [1, 1, 0, 0, 1, 1]  # ratios that cancel are for the cap to bound


def test_a_broken_record_makes_no_infinity() -> None:
    log_prob, behaviour = torch.zeros(2), torch.tensor([-1e9, 1e9])
    assert torch.isfinite(losses.ratio(log_prob, behaviour)).all()
    assert losses.capped(log_prob, behaviour, 2.0).tolist() == [2.0, pytest.approx(0.0, abs=1e-8)]


def test_the_value_loss_is_its_reference() -> None:
    value = drawn(-1, 1).requires_grad_()
    target, old, weight = drawn(-1, 1), drawn(-1, 1), drawn(0, 1)
    loss = losses.value_loss(value, target, old, weight, 0.2)
    terms, slopes = [], []
    for v, r, o, w in zip(*(part.tolist() for part in (value, target, old, weight)), strict=True):
        clipped = o + min(max(v - o, -0.2), 0.2)
        free = (v - r) ** 2 >= (clipped - r) ** 2
        terms.append(w * max((v - r) ** 2, (clipped - r) ** 2) / 2)
        slopes.append(w * (v - r) if free or clipped == v else 0.0)
    checked(loss, terms, slopes, value)


def test_the_preference_loss_is_its_reference() -> None:
    chosen, rejected = drawn(-9, -1).requires_grad_(), drawn(-9, -1)
    chosen_base, rejected_base = drawn(-9, -1), drawn(-9, -1)
    loss, margin = losses.preference(chosen, rejected, chosen_base, rejected_base, 0.3)
    terms, slopes = [], []
    for c, r, cb, rb in zip(*(part.tolist() for part in (chosen, rejected, chosen_base, rejected_base)), strict=True):
        gap = 0.3 * ((c - cb) - (r - rb))
        terms.append(math.log1p(math.exp(-gap)))
        slopes.append(-0.3 / (1 + math.exp(gap)))
    assert np.allclose(loss.detach().numpy(), terms, atol=EXACT)
    checked(loss.sum(), terms, slopes, chosen)
    assert margin.requires_grad is False


def test_the_bradley_terry_loss_is_its_reference() -> None:
    chosen, rejected = drawn(-3, 3).requires_grad_(), drawn(-3, 3)
    pairs = list(zip(chosen.tolist(), rejected.tolist(), strict=True))
    terms = [math.log1p(math.exp(r - c)) for c, r in pairs]
    slopes = [-1 / (1 + math.exp(c - r)) for c, r in pairs]
    checked(losses.bradley_terry(chosen, rejected).sum(), terms, slopes, chosen)


def test_an_episode_is_compared_with_the_others_of_its_group() -> None:
    reward = np.asarray([1.0, 0.0, 0.0, 5.0, 1.0])
    group = np.asarray([4, 4, 4, 9, 2])
    assert leave_one_out(reward, group).tolist() == pytest.approx([1.0, -0.5, -0.5, 0.0, 0.0])
    assert standardised(reward, group, scale=False).tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0.0, 0.0])
    deviation = math.sqrt(1 / 3) + 1e-4
    assert standardised(reward, group).tolist() == pytest.approx(
        [2 / 3 / deviation, -1 / 3 / deviation, -1 / 3 / deviation, 0.0, 0.0]
    )


def test_token_advantages_are_the_sum_of_discounted_errors() -> None:
    values = np.asarray([0.2, -0.1, 0.4])
    discount, trace = 0.9, 0.8
    advantage, target = token_advantages(values, 1.0, discount, trace)
    errors = [0.9 * -0.1 - 0.2, 0.9 * 0.4 + 0.1, 1.0 - 0.4]
    wanted = [sum((discount * trace) ** (at - t) * errors[at] for at in range(t, 3)) for t in range(3)]
    assert advantage == pytest.approx(wanted, abs=EXACT)
    assert target == pytest.approx(np.asarray(wanted) + values, abs=EXACT)
