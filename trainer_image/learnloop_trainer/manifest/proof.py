"""Rank 0, after training: export, evaluate, compare, and write the manifest that proves it."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.acting import metadata
from learnloop_api.kinds.behaviour import GREEDY, Behaviour
from learnloop_api.wire.experience import ExperienceRead
from learnloop_api.wire.training import Export, Manifest, ReturnEstimate, SuiteResult
from learnloop_environments import own_code
from learnloop_environments.base import Bounds, Observations, VectorEnvironment
from learnloop_trainer.algorithms import Learner, find, traits_of
from learnloop_trainer.errors import ExportError, NumericError
from learnloop_trainer.evaluation import Policy, difference, estimate, held_out_episodes, play
from learnloop_trainer.evaluation.held_out_episodes import held_out
from learnloop_trainer.evaluation.suite import Stage, measure
from learnloop_trainer.export import Behaving, OnnxPolicy, build
from learnloop_trainer.export.behaviour import behaviour_of, deviation_of
from learnloop_trainer.export.weights import read
from learnloop_trainer.manifest import baseline_policy as baseline
from learnloop_trainer.manifest.export_verification import more_formats, verify, witnesses
from learnloop_trainer.neural.dense_networks import Network
from learnloop_trainer.neural.observation_normalisation import normalised
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.safety import Shield, Shielded, Trail
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import digest
from learnloop_trainer.training_order import Order

VALIDATION = 20_000  # number of the first validation episode: above all of evaluation's, below the suite's
Returns = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]


def trained(
    network: Network, algorithm: str, bounds: Bounds | None = None, shield: Shield | None = None
) -> Callable[[Observations], NDArray[np.float32]]:
    """The trained network as a function from observations [n, observations] to logits or, with bounds, actions."""
    traits = traits_of(algorithm)

    def outputs(observation: Observations) -> NDArray[np.float32]:
        with torch.no_grad():
            seen = np.ascontiguousarray(normalised(network.fixed, observation))
            batch = torch.from_numpy(seen).to(network.vector.device)
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
    said = {metadata.BEHAVIOUR: behaviour.model_dump_json(exclude_none=True)}
    deviation = None
    if bounds is not None and behaviour.kind == "sampled":
        first = int(bool(bounds.choices))
        low, high = (tuple(side[first:].tolist()) for side in (bounds.low, bounds.high))
        said[metadata.BOUNDS] = metadata.Numbers(low, high, bounds.choices).written()
        deviation = deviation_of(algorithm)
    head, activation = traits.network
    return build(arrays, head, activation, dict(facts) | said, bounds, shield, traits.chooser, deviation)


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


def prove(
    order: Order,
    learner: Learner,
    world_size: int,
    store: Store,
    reporter: Reporter,
    durable: Callable[[], str],
    began: float,
    milestones: Mapping[int, Weights],
    begun_from: str = "",
    experience: ExperienceRead | None = None,
) -> Manifest:
    """Export, evaluate and store; `durable` waits for the final checkpoint. Returns the manifest, already durable.

    `milestones`: weights along training by step, for the evaluation suite. `experience`: what was read of a log.
    """
    spec, network = order.spec, learner.network
    reporter.phase("exporting", "building the ONNX graph")
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
    reporter.phase("evaluating", "playing held-out episodes")
    served = baseline.artifact(order, store)
    baseline_policy = baseline.policy(order, served, observations, actions, bounds)
    asked = spec.evaluation
    evaluation, ours, met = measured(order, policy, reporter, "exported policy", asked.episodes)
    before, theirs, _ = measured(order, baseline_policy, reporter, "baseline", asked.episodes)
    calm: ReturnEstimate | None = None
    if behaviour.kind != "greedy":
        calm, _, _ = measured(order, greedy, reporter, "greedy policy", asked.episodes)
    validation: ReturnEstimate | None = None
    if asked.validation_episodes:
        validation, _, _ = measured(order, policy, reporter, "validation", asked.validation_episodes, VALIDATION)
    reporter.phase("exporting", "comparing the exported policy with the trained one")
    seen, real = witnesses(order, store, met, actions, bounds)
    judge = trained(network, spec.algorithm, bounds, shield)
    parity, more = verify(judge, greedy, seen, real), more_formats(order, body, greedy, judge, seen, real)
    suite: SuiteResult | None = None
    if asked.suite is not None:
        network_of = traits_of(spec.algorithm).network
        stage = Stage(
            order,
            asked.suite,
            policy,
            baseline_policy,
            policy_of,
            read(body)[0],
            milestones,
            met,
            network.vector.device,
            reporter.alive,
            serving=baseline.weights(
                served, lambda name: (found := find(name)) is not None and found.network == network_of
            ),
        )
        suite = measure(stage, ours, theirs)
    reporter.phase("exporting", "storing artifact and manifest")
    checkpoint = durable()
    manifest = Manifest(
        job=order.job,
        agent=order.agent,
        algorithm=spec.algorithm,
        environment=spec.data.environment,
        seed=spec.seed,
        step=learner.step,
        total_steps=spec.total_steps,
        world_size=world_size,
        attempts=order.attempt + 1,
        artifact_uri=store.put_artifact(body),
        artifact_sha256=digest(body),
        artifact_bytes=len(body),
        checkpoint_sha256=checkpoint,
        baseline=before,
        evaluation=evaluation,
        difference=difference(ours, theirs, spec.seed),
        held_out=held_out_episodes.episodes(order).model_copy(update={"level": held_out_episodes.nominal(order).level}),
        begun_from=begun_from or None,
        rewards=spec.data.rewards or "environment",
        **_reward_policy(order),
        experience=experience,
        **_compared(order),
        behaviour=behaviour,
        greedy=calm,
        parity=parity,
        validation=validation,
        suite=suite,
        exports=[
            Export(format=kind, uri=store.put_artifact(data), sha256=digest(data), size_bytes=len(data), parity=its)
            for kind, data, its in more
        ],
        **_interventions(environment, order, store),
        wall_seconds=max(0.0, time.time() - began),
        versions=versions(),
        created_at=datetime.now(UTC),
    )
    store.put_manifest(manifest)
    return manifest


def _compared(order: Order) -> dict[str, str | None]:
    """The baseline by address and digest."""
    uri = order.baseline_uri or "uniform://"
    return {"baseline_uri": uri, "baseline_sha256": order.baseline_sha256 or None}


def _reward_policy(order: Order) -> dict[str, str | None]:
    """By name and revision, where the run learned by one."""
    found = order.reward_policy if order.spec.data.rewards == "policy" else None
    return {} if found is None else {"reward_policy": found.name, "reward_policy_revision": found.revision}


def _interventions(environment: VectorEnvironment, order: Order, store: Store) -> dict[str, Any]:
    """What the shield did in this rank's training, with its record made durable."""
    if not isinstance(environment, Shielded):
        return {}
    trail = Trail(order.job).read()
    taken, replaced = int(environment.executed.sum()), int(environment.interventions.sum())
    say(f"the shield replaced {replaced} of {taken} actions in training")
    return {"actions": taken, "interventions": replaced, "audit_uri": store.put_artifact(trail) if trail else None}


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("gymnasium", "learnloop", "numpy", "onnx", "onnxruntime"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # Debian's packages bring no metadata
            found[package] = "unknown"
    code = own_code.fingerprint(os.environ)
    return found if code is None else found | {"environment": code}
