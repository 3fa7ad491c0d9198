"""How good the exported policy is, and the one it is to beat: by playing, or by the log where nobody can play."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import HeldOut, Interval, OffPolicy, ReturnEstimate
from learnloop_environments.action_spaces import ActionSpace
from learnloop_environments.base import Observations
from learnloop_trainer.algorithms import Learner
from learnloop_trainer.errors import ExportError
from learnloop_trainer.evaluation import Policy, difference, estimate, held_out_episodes, play
from learnloop_trainer.evaluation.held_out_episodes import held_out
from learnloop_trainer.evaluation.off_policy import Estimate, LoggedSteps, evaluate
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.recordings import Recording
from learnloop_trainer.training_order import Order

VALIDATION = 20_000  # number of the first validation episode: above all of evaluation's, below the suite's
NO_EPISODES = ReturnEstimate(episodes=0, mean=0.0, iqm=0.0, ci_low=0.0, ci_high=0.0)
Returns = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the manifest says of the exported policy's worth."""

    evaluation: ReturnEstimate
    baseline: ReturnEstimate
    difference: Interval | None
    met: Observations  # what was seen, for the parity check [m, observations]
    ours: Returns  # of each played episode; none where nobody plays
    theirs: Returns
    held_out: HeldOut | None = None
    greedy: ReturnEstimate | None = None
    validation: ReturnEstimate | None = None
    off_policy: OffPolicy | None = None


def measured(
    order: Order, policy: Policy, reporter: Reporter, what: str, episodes: int, first: int = 0
) -> tuple[ReturnEstimate, Returns, Observations]:
    """The policy's return on the run's held-out episodes from number `first`, each of them, and observations it met."""
    seed = order.spec.seed
    tell = lambda done: reporter.alive(f"{what}: {done}/{episodes} held-out episodes")  # noqa: E731
    returns, met = play(held_out(order, first=first), policy, seed, episodes, tell)
    result = estimate(returns, seed)
    if result is None:
        raise ExportError("spec.evaluation.episodes is 0: nothing was evaluated")
    say(f"{what}: mean {result.mean:.1f} [{result.ci_low:.1f}, {result.ci_high:.1f}] over {episodes} held-out episodes")
    return result, returns, met


def by_playing(order: Order, policy: Behaving, greedy: OnnxPolicy, baseline: Policy, reporter: Reporter) -> Judgement:
    reporter.phase("evaluating", "playing held-out episodes")
    asked = order.spec.evaluation
    evaluation, ours, met = measured(order, policy, reporter, "exported policy", asked.episodes)
    before, theirs, _ = measured(order, baseline, reporter, "baseline", asked.episodes)
    calm: ReturnEstimate | None = None
    if greedy.behaviour.kind != "greedy":
        calm, _, _ = measured(order, greedy, reporter, "greedy policy", asked.episodes)
    validation: ReturnEstimate | None = None
    if asked.validation_episodes:
        validation, _, _ = measured(order, policy, reporter, "validation", asked.validation_episodes, VALIDATION)
    level = held_out_episodes.nominal(order).level
    return Judgement(
        evaluation,
        before,
        difference(ours, theirs, order.spec.seed),
        met,
        ours,
        theirs,
        held_out=held_out_episodes.episodes(order).model_copy(update={"level": level}),
        greedy=calm,
        validation=validation,
    )


def by_log(order: Order, policy: Behaving, learner: Learner, proof: Recording | None, reporter: Reporter) -> Judgement:
    """The policy beside those that acted, from logged episodes that nothing was learned from."""
    reporter.phase("evaluating", "judging by logged episodes")
    discount = float(getattr(order.parameters, "discount", 0.99))
    learned = Recording.of(learner.shared())
    assert learned is not None  # it has learned from one
    nothing = np.zeros(0)
    if proof is None:
        refused = "no whole logged episode was kept for the proof; log more of them"
        off_policy = OffPolicy(discount=discount, episodes=0, verdict=False, message=refused)
        return Judgement(NO_EPISODES, NO_EPISODES, None, learned.observation, nothing, nothing, off_policy=off_policy)
    steps, space = LoggedSteps.of(proof), ActionSpace.of(learner.environment)
    device, seed = learner.network.vector.device, order.spec.seed
    found = evaluate(policy, steps, LoggedSteps.of(learned), space, discount, seed, device)
    off_policy = _told(found, steps, discount)
    baseline = estimate(found.returns, seed) or NO_EPISODES
    met = np.concatenate((proof.observation, learned.observation))
    one = found.corrected
    if one is None or not found.verdict:
        say(f"no verdict from {steps.episodes} logged episodes: {found.refused}")
        return Judgement(NO_EPISODES, baseline, None, met, nothing, nothing, off_policy=off_policy)
    say(f"exported policy: estimated {one.value:.2f} [{one.low:.2f}, {one.high:.2f}] from {steps.episodes} episodes")
    estimated = ReturnEstimate(episodes=steps.episodes, mean=one.value, iqm=one.value, ci_low=one.low, ci_high=one.high)
    gain = Interval(value=one.gain, low=one.gain_low, high=one.gain_high)
    return Judgement(estimated, baseline, gain, met, nothing, nothing, off_policy=off_policy)


def _told(found: Estimate, steps: LoggedSteps, discount: float) -> OffPolicy:
    one = found.corrected
    figures = {"discount": discount, "episodes": steps.episodes, "longest": steps.longest}
    if one is None:
        return OffPolicy.model_validate(figures | {"verdict": False, "message": found.refused[:1024]})
    return OffPolicy.model_validate(
        figures
        | {
            "verdict": found.verdict,
            "message": found.refused[:1024],
            "model": found.model,
            "corrected_steps": one.steps,
            "effective_episodes": one.effective,
            "by_model": one.by_model,
        }
    )
