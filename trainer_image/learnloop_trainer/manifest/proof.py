"""The proof of a policy of numbers: by playing, or by the log without an environment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import GREEDY, Behaviour
from learnloop_api.wire.training import (
    ExportedFormat,
    HeldOut,
    Interval,
    Manifest,
    OffPolicy,
    Parity,
    ReturnEstimate,
    SuiteResult,
    Validated,
)
from learnloop_common.acting import policy
from learnloop_environments.base import ActionSpace, Bounds, Observations, VectorEnvironment
from learnloop_environments.randomness import Purpose, generator
from learnloop_trainer.algorithms import Learner, traits_of
from learnloop_trainer.errors import ExportError, NumericError
from learnloop_trainer.evaluation import Policy, collect, difference, estimate, held_out_episodes, play
from learnloop_trainer.evaluation.off_policy import Estimate, LoggedSteps, evaluate
from learnloop_trainer.evaluation.suite import Stage, measure
from learnloop_trainer.export import Behaving, Exported, OnnxPolicy, TorchPolicy, build, check, torchscript
from learnloop_trainer.export.behaviour import behaviour_of, deviation_of
from learnloop_trainer.export.other_formats import read
from learnloop_trainer.export.runtime import Logits
from learnloop_trainer.manifest import baseline_policy as baseline
from learnloop_trainer.manifest.record import stored
from learnloop_trainer.neural.networks import Network
from learnloop_trainer.neural.observation_normalisation import normalised
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.recordings import ReadExperience, Recording
from learnloop_trainer.run import Run
from learnloop_trainer.safety import Shield, Shielded, Trail
from learnloop_trainer.store.run_store import Store, digest
from learnloop_trainer.training_order import Order

VALIDATION = 20_000  # number of the first validation episode: above all of evaluation's, below the suite's
NO_EPISODES = ReturnEstimate(episodes=0, mean=0.0, iqm=0.0, ci_low=0.0, ci_high=0.0)
Returns = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The exported policy's returns and the baseline's, for the manifest."""

    evaluation: ReturnEstimate
    baseline: ReturnEstimate
    difference: Interval | None
    met: Observations  # what was seen, for the parity check [m, observations]
    ours: Returns  # of each played episode; none without an environment
    others: Returns
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
    returns, met = play(held_out_episodes.held_out(order, first=first), policy, seed, episodes, tell)
    result = estimate(returns, seed)
    if result is None:
        raise ExportError("spec.evaluation.episodes is 0: nothing was evaluated")
    say(f"{what}: mean {result.mean:.1f} [{result.ci_low:.1f}, {result.ci_high:.1f}] over {episodes} held-out episodes")
    return result, returns, met


def by_playing(order: Order, policy: Behaving, greedy: OnnxPolicy, baseline: Policy, reporter: Reporter) -> Judgement:
    reporter.phase("evaluating", "playing held-out episodes")
    wanted = order.spec.evaluation
    evaluation, ours, met = measured(order, policy, reporter, "exported policy", wanted.episodes)
    before, others, _ = measured(order, baseline, reporter, "baseline", wanted.episodes)
    calm: ReturnEstimate | None = None
    if greedy.behaviour.kind != "greedy":
        calm, _, _ = measured(order, greedy, reporter, "greedy policy", wanted.episodes)
    validation: ReturnEstimate | None = None
    if wanted.validation_episodes:
        validation, _, _ = measured(order, policy, reporter, "validation", wanted.validation_episodes, VALIDATION)
    level = held_out_episodes.nominal(order).level
    return Judgement(
        evaluation,
        before,
        difference(ours, others, order.spec.seed),
        met,
        ours,
        others,
        held_out=held_out_episodes.episodes(order).model_copy(update={"level": level}),
        greedy=calm,
        validation=validation,
    )


def by_log(order: Order, policy: Behaving, learner: Learner, proof: Recording | None, reporter: Reporter) -> Judgement:
    """Compare the policy with those that acted, from logged episodes that nothing was learned from."""
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
    offline = evaluate(policy, steps, LoggedSteps.of(learned), space, discount, seed, device)
    off_policy = _told(offline, steps, discount)
    baseline = estimate(offline.returns, seed) or NO_EPISODES
    met = np.concatenate((proof.observation, learned.observation))
    one = offline.corrected
    if one is None or not offline.verdict:
        say(f"no verdict from {steps.episodes} logged episodes: {offline.refused}")
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


PARITY_OBSERVATIONS = 10_000
RECORDED_OBSERVATIONS = 10_000
Verified = tuple[Literal["torchscript"], bytes, Parity]


def recorded(order: Order, store: Store, width: int) -> Observations:
    """Observations that the agent recorded, [m, width]; observations of another width are left out with a note."""
    agent = order.spec.data.learning_agent_ref
    rows = store.observations(agent.name, RECORDED_OBSERVATIONS) if agent else []
    fitting = [row for row in rows if len(row) == width]
    if len(fitting) < len(rows):
        say(f"{len(rows) - len(fitting)} recorded observations do not have {width} numbers and are left out")
    array = np.asarray(fitting, dtype=np.float32).reshape(-1, width)
    return array[np.isfinite(array).all(axis=1)]


def witnesses(
    order: Order, store: Store, met: Observations, actions: int, bounds: Bounds | None = None
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


def near(met: Observations, count: int, order: Order) -> Observations:
    """So many observations near the logged ones, for runs without an environment: moved by a tenth of a deviation."""
    random = generator(Purpose.NOISE, order.spec.seed, 1)
    picked = met[random.integers(0, len(met), count)]
    return np.asarray(picked + 0.1 * met.std(axis=0) * random.standard_normal(picked.shape), dtype=np.float32)


def verify(network: Callable[[Observations], Logits], policy: Exported, seen: Observations, real: int) -> Parity:
    """Parity of an exported policy with the trained network; raises ExportError when it fails."""
    parity = check(network, policy, seen, real)
    if not parity.passed:
        raise ExportError(
            f"the exported graph differs from the trained network: actions agree on {parity.action_agreement:.2%} of "
            f"{parity.observations} observations, outputs by up to {parity.max_abs_difference:.3g}; nothing was stored"
        )
    return parity


def more_formats(
    order: Order,
    body: bytes,
    policy: OnnxPolicy,
    network: Callable[[Observations], Logits],
    seen: Observations,
    real: int,
) -> list[Verified]:
    """The policy in each further format the order asks for, verified; raises ExportError where one fails."""
    verified: list[Verified] = []
    for kind in order.spec.export.formats:
        converted = torchscript(body)
        loaded = TorchPolicy(converted, continuous=policy.continuous, hybrid=policy.hybrid)
        parity = verify(network, loaded, seen, real)
        say(f"{kind}: outputs differ by up to {parity.max_abs_difference:.3g} on {parity.observations} observations")
        verified.append((kind, converted, parity))
    return verified


Weights = Mapping[str, NDArray[np.float32]]


def trained(
    network: Network, algorithm: str, bounds: Bounds | None = None, shield: Shield | None = None
) -> Callable[[Observations], NDArray[np.float32]]:
    """The trained network as a function from observations [n, observations] to logits or, with bounds, actions."""
    traits = traits_of(algorithm)

    def outputs(observation: Observations) -> NDArray[np.float32]:
        with torch.no_grad():
            inputs = np.ascontiguousarray(normalised(network.fixed, observation))
            batch = torch.from_numpy(inputs).to(network.vector.device)
            result = traits.act(network.leaves, batch)
            if bounds is None:
                logits = np.asarray(result.cpu().numpy())
                return logits if shield is None else shield.mask(observation, logits)
            action = bounds.greedy(np.asarray(result.cpu().numpy()))
            return action if shield is None else np.asarray(shield.project(observation, action)[0], dtype=np.float32)

    return outputs


def graph(
    arrays: Weights,
    algorithm: str,
    facts: Mapping[str, str],
    bounds: Bounds | None,
    shield: Shield | None,
    behaviour: Behaviour = GREEDY,
) -> bytes:
    """A policy with these weights as an ONNX graph with these facts in its metadata, how it acts among them."""
    traits = traits_of(algorithm)
    properties = {policy.BEHAVIOUR: behaviour.model_dump_json(exclude_none=True)}
    deviation = None
    if bounds is not None and behaviour.kind == "sampled":
        first = int(bool(bounds.choices))
        low, high = (tuple(side[first:].tolist()) for side in (bounds.low, bounds.high))
        properties[policy.BOUNDS] = policy.Numbers(low, high, bounds.choices).written()
        deviation = deviation_of(algorithm)
    head, activation = traits.network
    return build(arrays, head, activation, dict(facts) | properties, bounds, shield, traits.chooser, deviation)


def prove(
    run: Run,
    learner: Learner,
    milestones: Mapping[int, Weights],
    begun_from: str,
    log: ReadExperience,
    validated: Validated | None,
) -> Manifest:
    """Export, evaluate and store. Returns the manifest, already durable.

    `milestones`: weights along training by step, for the evaluation suite. `log`: what was read of one.
    `validated`: the evaluation along training.
    """
    order, spec, network, store = run.order, run.order.spec, learner.network, run.store
    run.reporter.phase("exporting", "building the ONNX graph")
    facts = {"learnloop.algorithm": spec.algorithm, "learnloop.job": order.job}
    environment = learner.environment
    observations, actions, bounds = environment.observations, environment.actions, environment.bounds
    continuous, shield = bounds is not None, None
    if spec.safety is not None:
        shield = Shield(spec.safety, observations, actions, continuous=continuous)

    behaviour = behaviour_of(order, bounds)

    def loaded(graph: bytes) -> OnnxPolicy:
        try:
            return OnnxPolicy(graph, observations, actions, continuous=continuous)
        except ValueError as error:
            raise NumericError(f"the exported policy: {error}") from None

    def policy_of(weights: Weights) -> Policy:
        return Behaving(loaded(graph(weights, spec.algorithm, facts, bounds, shield, behaviour)), spec.seed)

    body = graph(network.exported(), spec.algorithm, facts, bounds, shield, behaviour)
    greedy = loaded(body)
    policy = Behaving(greedy, spec.seed)
    if spec.data.environment is None:
        judged = by_log(order, policy, learner, log.proof, run.reporter)
    else:
        baseline_policy = baseline.policy(order, baseline.artifact(order, store), observations, actions, bounds)
        judged = by_playing(order, policy, greedy, baseline_policy, run.reporter)
    run.reporter.phase("exporting", "comparing the exported policy with the trained one")
    samples, real = witnesses(order, store, judged.met, actions, bounds)
    judge = trained(network, spec.algorithm, bounds, shield)
    parity, more = verify(judge, greedy, samples, real), more_formats(order, body, greedy, judge, samples, real)
    suite: SuiteResult | None = None
    if spec.evaluation.suite is not None:
        stage = Stage(
            order,
            spec.evaluation.suite,
            policy,
            baseline_policy,
            policy_of,
            read(body)[0],
            milestones,
            judged.met,
            network.vector.device,
            run.reporter.alive,
        )
        suite = measure(stage, judged.ours, judged.others)
    run.reporter.phase("exporting", "storing artifact and manifest")
    compared = {"baseline_uri": order.baseline_uri or "uniform://", "baseline_sha256": order.baseline_sha256 or None}
    return stored(
        run,
        learner.step,
        body,
        baseline=judged.baseline,
        evaluation=judged.evaluation,
        difference=judged.difference,
        held_out=judged.held_out,
        off_policy=judged.off_policy,
        begun_from=begun_from or None,
        experience=log.note,
        **({} if judged.off_policy else compared),
        behaviour=behaviour,
        greedy=judged.greedy,
        parity=parity,
        validation=judged.validation,
        while_training=validated,
        suite=suite,
        exports=[
            ExportedFormat(
                format=kind, uri=store.put_artifact(data), sha256=digest(data), size_bytes=len(data), parity=its
            )
            for kind, data, its in more
        ],
        **_interventions(environment, order, store),
    )


def _interventions(environment: VectorEnvironment, order: Order, store: Store) -> dict[str, Any]:
    """Interventions of the shield in this rank's training, with its record made durable."""
    if not isinstance(environment, Shielded):
        return {}
    trail = Trail(order.job).read()
    taken, replaced = int(environment.executed.sum()), int(environment.interventions.sum())
    say(f"the shield replaced {replaced} of {taken} actions in training")
    return {"actions": taken, "interventions": replaced, "audit_uri": store.put_artifact(trail) if trail else None}
