"""The proof of a policy of numbers: by playing, or by the log without an environment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import Interval, OffPolicy, Parity, ReturnEstimate
from learnloop_environments import multipliers, randomness
from learnloop_environments.spaces import ActionSpace, Bounds, Observations, VectorEnvironment
from learnloop_trainer import (
    algorithms,
    baseline_policy as baseline,
    errors,
    export,
    progress_reporter,
    recordings,
    shielded_environment,
    training_order,
)
from learnloop_trainer.evaluation import Policy, collect, difference, estimate, fitted_q, held_out_episodes, play, suite
from learnloop_trainer.evaluation.held_out_costs import Costs
from learnloop_trainer.evaluation.off_policy import Estimate, evaluate
from learnloop_trainer.export import exported_policy, other_formats
from learnloop_trainer.store.run_store import Store
from learnloop_trainer.training_run import kl_bound, policy_training, proof as proofs, training_loop

VALIDATION = 20_000  # number of the first validation episode: above all of evaluation's, below the suite's
NO_EPISODES = ReturnEstimate(episodes=0, mean=0.0, iqm=0.0, ci_low=0.0, ci_high=0.0)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Fields of the proof that say how good the exported policy is, and what they come from."""

    fields: Mapping[str, Any]
    met: Observations  # what was seen, for the parity check [m, observations]
    ours: proofs.Returns = field(
        default_factory=lambda: np.zeros(0)
    )  # of each played episode; none without an environment
    others: proofs.Returns = field(default_factory=lambda: np.zeros(0))


def measured(
    order: training_order.Order,
    policy: Policy,
    reporter: progress_reporter.Reporter,
    what: str,
    episodes: int,
    first: int = 0,
    costs: Costs | None = None,
) -> tuple[ReturnEstimate, proofs.Returns, Observations]:
    """The policy's return on the run's held-out episodes from number `first`, each of them, and observations it met."""
    seed, world = order.spec.seed, held_out_episodes.held_out(order, first=first)
    if costs is not None:
        world = costs.watched(world, lambda: policy.replaced if isinstance(policy, export.Behaving) else None)
    tell = lambda done: reporter.alive(f"{what}: {done}/{episodes} held-out episodes")  # noqa: E731
    returns, met = play(world, policy, seed, episodes, tell)
    result = estimate(returns, seed)
    if result is None:
        raise errors.ExportError("spec.evaluation.episodes is 0: nothing was evaluated")
    progress_reporter.say(
        f"{what}: mean {result.mean:.1f} [{result.ci_low:.1f}, {result.ci_high:.1f}] over {episodes} held-out episodes"
    )
    return result, returns, met


def by_playing(
    order: training_order.Order,
    policy: export.Behaving,
    greedy: export.OnnxPolicy,
    baseline: Policy,
    reporter: progress_reporter.Reporter,
    penalties: multipliers.Multipliers | None = None,
) -> Judgement:
    """`penalties`: of constraints whose means the proof has to show."""
    limits = () if penalties is None else penalties.constraints
    trained = [one.name for at, one in enumerate(limits) if penalties is not None and penalties.measured(at)]
    reporter.phase("evaluating", "playing held-out episodes")
    wanted, costs = order.spec.evaluation, Costs(limits, shielded=order.spec.safety is not None, trained=trained)
    evaluation, ours, met = measured(order, policy, reporter, "exported policy", wanted.episodes, costs=costs)
    before, others, _ = measured(order, baseline, reporter, "baseline", wanted.episodes, costs=costs)
    fields: dict[str, Any] = {"evaluation": evaluation, "baseline": before}
    fields |= {"difference": difference(ours, others, order.spec.seed), "costs": costs.compared(order.spec.seed)}
    if greedy.behaviour.kind != "greedy":
        best = export.Behaving(greedy, order.spec.seed, explore=False)
        fields["greedy"], _, _ = measured(order, best, reporter, "greedy policy", wanted.episodes)
    if wanted.validation_episodes:
        more = measured(order, policy, reporter, "validation", wanted.validation_episodes, VALIDATION)
        fields["validation"] = more[0]
    level = held_out_episodes.nominal(order).level
    held_out = held_out_episodes.episodes(order).model_copy(update={"level": level})
    serving = {"baseline_uri": order.baseline_uri or "uniform://", "baseline_sha256": order.baseline_sha256 or None}
    return Judgement({**fields, **serving, "held_out": held_out}, met, ours, others)


def by_log(
    order: training_order.Order,
    policy: export.Behaving,
    learner: algorithms.Learner,
    proof: recordings.Recording | None,
    reporter: progress_reporter.Reporter,
) -> Judgement:
    """Compare the policy with those that acted, from logged episodes that nothing was learned from."""
    reporter.phase("evaluating", "judging by logged episodes")
    discount = float(getattr(order.parameters, "discount", 0.99))
    learned = recordings.Recording.of(learner.shared())
    assert learned is not None  # it has learned from one
    unjudged = {"evaluation": NO_EPISODES, "baseline": NO_EPISODES}
    if proof is None:
        refused = "no whole logged episode was kept for the proof; log more of them"
        off_policy = OffPolicy(discount=discount, episodes=0, verdict=False, message=refused)
        return Judgement({**unjudged, "off_policy": off_policy}, learned.observation)
    steps, space = fitted_q.LoggedSteps.of(proof), ActionSpace.of(learner.environment)
    device, seed = learner.network.vector.device, order.spec.seed
    offline = evaluate(policy, steps, fitted_q.LoggedSteps.of(learned), space, discount, seed, device)
    fields: dict[str, Any] = {"baseline": estimate(offline.returns, seed) or NO_EPISODES}
    fields["off_policy"] = _off_policy(offline, steps, discount)
    met = np.concatenate((proof.observation, learned.observation))
    one = offline.corrected
    if one is None or not offline.verdict:
        progress_reporter.say(f"no verdict from {steps.episodes} logged episodes: {offline.refused}")
        return Judgement({**unjudged, **fields}, met)
    progress_reporter.say(
        f"exported policy: estimated {one.value:.2f} [{one.low:.2f}, {one.high:.2f}] from {steps.episodes} episodes"
    )
    estimated = ReturnEstimate(episodes=steps.episodes, mean=one.value, iqm=one.value, ci_low=one.low, ci_high=one.high)
    gain = Interval(value=one.gain, low=one.gain_low, high=one.gain_high)
    return Judgement({**fields, "evaluation": estimated, "difference": gain}, met)


def _off_policy(estimate: Estimate, steps: fitted_q.LoggedSteps, discount: float) -> OffPolicy:
    one = estimate.corrected
    figures: dict[str, Any] = {"discount": discount, "episodes": steps.episodes, "longest": steps.longest}
    figures |= {"message": estimate.refused[:1024], "verdict": one is not None and estimate.verdict}
    if one is not None:
        figures |= {"model": estimate.model, "corrected_steps": one.steps}
        figures |= {"effective_episodes": one.effective, "by_model": one.by_model}
    return OffPolicy(**figures)


PARITY_OBSERVATIONS = 10_000
RECORDED_OBSERVATIONS = 10_000
Verified = tuple[Literal["torchscript"], bytes, Parity]


def recorded(order: training_order.Order, store: Store, width: int) -> Observations:
    """Observations that the agent recorded, [m, width]; observations of another width are left out with a note."""
    agent = order.spec.data.learning_agent_ref
    rows = store.observations(agent.name, RECORDED_OBSERVATIONS) if agent else []
    fitting = [row for row in rows if len(row) == width]
    if len(fitting) < len(rows):
        progress_reporter.say(
            f"{len(rows) - len(fitting)} recorded observations do not have {width} numbers and are left out"
        )
    array = np.asarray(fitting, dtype=np.float32).reshape(-1, width)
    return array[np.isfinite(array).all(axis=1)]


def witnesses(
    order: training_order.Order, store: Store, met: Observations, actions: int, bounds: Bounds | None = None
) -> tuple[Observations, int]:
    """At least PARITY_OBSERVATIONS to verify the export with, and how many of them an agent recorded.

    Recorded ones come first, then those that evaluation met, then those of random play; without an environment, others
    near those that were logged.
    """
    real = recorded(order, store, met.shape[1])
    missing = max(0, PARITY_OBSERVATIONS - len(real))
    observations = np.concatenate((real, met[:missing]))
    if len(observations) < PARITY_OBSERVATIONS:
        more = PARITY_OBSERVATIONS - len(observations)
        played = order.spec.data.environment is not None
        extra = (
            collect(held_out_episodes.held_out(order), actions, order.spec.seed, more, bounds)
            if played
            else near(met, more, order)
        )
        observations = np.concatenate((observations, extra))
    return observations, len(real)


def near(met: Observations, count: int, order: training_order.Order) -> Observations:
    """So many observations near the logged ones, for runs without an environment: moved by a tenth of a deviation."""
    random = randomness.generator(randomness.Purpose.NOISE, order.spec.seed, 1)
    picked = met[random.integers(0, len(met), count)]
    return np.asarray(picked + 0.1 * met.std(axis=0) * random.standard_normal(picked.shape), dtype=np.float32)


def verify(
    network: Callable[[Observations], exported_policy.Logits],
    policy: export.Exported,
    sample: Observations,
    real: int,
    unsure: NDArray[np.bool_] | None = None,
) -> Parity:
    """Parity of an exported policy with the trained network; raises ExportError when it fails."""
    parity = export.check(network, policy, sample, real, unsure)
    if not parity.passed:
        raise errors.ExportError(
            f"the exported graph differs from the trained network: actions agree on {parity.action_agreement:.2%} of "
            f"{parity.observations} observations, outputs by up to {parity.max_abs_difference:.3g}; nothing was stored"
        )
    return parity


def more_formats(
    order: training_order.Order,
    body: bytes,
    policy: export.OnnxPolicy,
    network: Callable[[Observations], exported_policy.Logits],
    sample: Observations,
    real: int,
    unsure: NDArray[np.bool_] | None,
) -> list[Verified]:
    """The policy in each further format the order asks for, verified; raises ExportError where one fails."""
    verified: list[Verified] = []
    for kind in order.spec.export.formats:
        converted = export.torchscript(body)
        loaded = export.TorchPolicy(converted, continuous=policy.continuous, hybrid=policy.hybrid)
        parity = verify(network, loaded, sample, real, unsure)
        progress_reporter.say(
            f"{kind}: outputs differ by up to {parity.max_abs_difference:.3g} on {parity.observations} observations"
        )
        verified.append((kind, converted, parity))
    return verified


def prove_policy(run: training_loop.Run, training: policy_training.PolicyTraining) -> proofs.Exported:
    """Export the policy, and play it and what serves on held-out episodes, or judge it by the log."""
    order, spec, store, learner = run.order, run.order.spec, run.store, training.learner
    run.reporter.phase("exporting", "building the ONNX graph")
    environment, network = learner.environment, learner.network
    actions, bounds = environment.actions, environment.bounds
    body, greedy = exported_policy.written(order, environment, network.exported())
    policy = export.Behaving(greedy, spec.seed)
    if spec.data.environment is None:
        judged = by_log(order, policy, learner, training.read.proof, run.reporter)
    else:
        serving = baseline.policy(order, baseline.artifact(order, store), environment.observations, actions, bounds)
        judged = by_playing(order, policy, greedy, serving, run.reporter, training.penalties)
    run.reporter.phase("exporting", "comparing the exported policy with the trained one")
    samples, real = witnesses(order, store, judged.met, actions, bounds)
    shield, unsure = exported_policy.shield_of(order, environment), None
    judge = exported_policy.trained(network, spec.algorithm, bounds, shield)
    if shield is not None and shield.policy is not None:
        wanted = exported_policy.trained(network, spec.algorithm, bounds)(samples)
        unsure = shield.unsure(samples, wanted, exported_policy.tolerance_of(wanted))
    parity = verify(judge, greedy, samples, real, unsure)
    more = more_formats(order, body, greedy, judge, samples, real, unsure)
    fields = {**judged.fields, "behaviour": greedy.behaviour, "parity": parity}
    if order.update is not None:
        fields |= {"kl": kl_bound.divergence(serving, policy, judged.met), "ended_by_kl": training.over}
    if spec.evaluation.suite is not None:
        stage = suite.Stage(
            order,
            spec.evaluation.suite,
            policy,
            serving,
            lambda weights: export.Behaving(exported_policy.written(order, environment, weights)[1], spec.seed),
            other_formats.read(body)[0],
            training.milestones.snapshots if training.milestones is not None else {},
            judged.met,
            network.vector.device,
            run.reporter.alive,
        )
        fields["suite"] = suite.measure(stage, judged.ours, judged.others)
    return proofs.Exported(body, fields | _interventions(environment, order, store), more)


def _interventions(environment: VectorEnvironment, order: training_order.Order, store: Store) -> dict[str, Any]:
    """Interventions of the shield in this rank's training, with its record made durable."""
    if not isinstance(environment, shielded_environment.Shielded):
        return {}
    trail = shielded_environment.Trail(order.job).read()
    taken, replaced = int(environment.executed.sum()), int(environment.interventions.sum())
    progress_reporter.say(f"the shield replaced {replaced} of {taken} actions in training")
    return {"actions": taken, "interventions": replaced, "audit_uri": store.put_artifact(trail) if trail else None}
