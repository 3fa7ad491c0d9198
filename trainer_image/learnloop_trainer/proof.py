"""Rank 0, after training: export, evaluate, compare, and write the manifest that proves it."""

import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.wire.training import Manifest, Parity, ReturnEstimate
from learnloop_trainer import baseline
from learnloop_trainer.algorithms import (
    Learner,
    bc,
    dqn,
    hierarchical_dqn,
    independent_dqn,
    maddpg,
    maml,
    ppo,
    qmix,
    sac,
    vtrace,
)
from learnloop_trainer.environments import Conditions, make
from learnloop_trainer.environments.base import Bounds, Observations, VectorEnvironment
from learnloop_trainer.errors import ExportError
from learnloop_trainer.evaluation import Policy, World, collect, estimate, play
from learnloop_trainer.export import OnnxPolicy, build, check
from learnloop_trainer.networks import Network, forward
from learnloop_trainer.normalising import normalised
from learnloop_trainer.order import Order
from learnloop_trainer.randomness import Split
from learnloop_trainer.reporter import Reporter, say
from learnloop_trainer.safety import Shield, Shielded, Trail, shielded
from learnloop_trainer.store import Store
from learnloop_trainer.store.base import digest

PARITY_OBSERVATIONS = 2000
RECORDED_OBSERVATIONS = 10_000
HEADS = {
    "ppo": ("policy", ppo.ACTIVATION),
    "dqn": ("q", dqn.ACTIVATION),
    "sac": ("actor", sac.ACTIVATION),
    "bc": ("policy", bc.ACTIVATION),
    "independent-dqn": ("q", independent_dqn.ACTIVATION),
    "qmix": ("q", qmix.ACTIVATION),
    "maddpg": ("actor", maddpg.ACTIVATION),
    "hierarchical-dqn": ("q", hierarchical_dqn.ACTIVATION),
    "vtrace": ("policy", vtrace.ACTIVATION),
    "maml": ("actor", maml.ACTIVATION),
}
CHOOSERS = {"hierarchical-dqn": "meta"}  # perceptrons that choose what the head is told beside the observation


def trained(
    network: Network, algorithm: str, bounds: Bounds | None = None, shield: Shield | None = None
) -> Callable[[Observations], NDArray[np.float32]]:
    """The trained network as a function from observations [n, observations] to logits or, with bounds, actions."""
    name, activation = HEADS[algorithm]

    def outputs(observation: Observations) -> NDArray[np.float32]:
        with torch.no_grad():
            seen = np.ascontiguousarray(normalised(network.fixed, observation))
            batch = torch.from_numpy(seen).to(network.vector.device)
            hierarchical = algorithm in CHOOSERS
            result = (
                hierarchical_dqn.greedy(network.leaves, batch)
                if hierarchical
                else forward(network.leaves, name, activation, batch)
            )
            if bounds is None:
                logits = np.asarray(result.cpu().numpy())
                return logits if shield is None else shield.mask(observation, logits)
            action = bounds.greedy(np.asarray(result.cpu().numpy()))
            return action if shield is None else np.asarray(shield.project(observation, action)[0], dtype=np.float32)

    return outputs


def graph(learner: Learner, algorithm: str, facts: Mapping[str, str], shield: Shield | None) -> bytes:
    """The learner's policy as an ONNX graph with these facts in its metadata."""
    head, activation = HEADS[algorithm]
    bounds, chooser = learner.environment.bounds, CHOOSERS.get(algorithm)
    return build(learner.network.arrays() | learner.network.fixed, head, activation, facts, bounds, shield, chooser)


def recorded(order: Order, store: Store, width: int) -> Observations:
    """What the agent really saw, [m, width]; observations of another width are left out with a note."""
    agent = order.spec.data.learning_agent_ref
    rows = store.observations(agent.name, RECORDED_OBSERVATIONS) if agent else []
    fitting = [row for row in rows if len(row) == width]
    if len(fitting) < len(rows):
        say(f"{len(rows) - len(fitting)} recorded observations do not have {width} numbers and are left out")
    array = np.asarray(fitting, dtype=np.float32).reshape(-1, width)
    return array[np.isfinite(array).all(axis=1)]


def verify(
    order: Order,
    store: Store,
    network: Network,
    policy: OnnxPolicy,
    met: Observations,
    actions: int,
    bounds: Bounds | None = None,
    shield: Shield | None = None,
) -> Parity:
    """Parity on recorded observations, topped up with evaluation's; raises ExportError when it fails."""
    real = recorded(order, store, met.shape[1])
    missing = max(0, PARITY_OBSERVATIONS - len(real))
    observations = np.concatenate((real, met[:missing]))
    if len(observations) < PARITY_OBSERVATIONS:
        more = PARITY_OBSERVATIONS - len(observations)
        extra = collect(held_out(order), actions, order.spec.seed, more, bounds)
        observations = np.concatenate((observations, extra))
    parity = check(trained(network, order.spec.algorithm, bounds, shield), policy, observations, len(real))
    if not parity.passed:
        raise ExportError(
            f"the exported graph differs from the trained network: actions agree on {parity.action_agreement:.2%} of "
            f"{parity.observations} observations, outputs by up to {parity.max_abs_difference:.3g}; nothing was stored"
        )
    return parity


def held_out(order: Order) -> World:
    """The run's held-out episodes: nominal physics, plain rewards, and the level the run is to reach.

    The baseline, too, plays behind the shield: it is obeyed even in evaluation.
    """
    spec = order.spec

    def opened(members: range) -> VectorEnvironment:
        level = spec.data.level
        if spec.curriculum is not None:
            kind = make(spec.data.environment, Split.HELD_OUT, spec.seed, range(1))
            level = spec.curriculum.until or list(getattr(kind, "LEVELS", ()))[-1].name
            kind.close()
        conditions = Conditions(level)
        return shielded(make(spec.data.environment, Split.HELD_OUT, spec.seed, members, conditions), spec.safety)

    return opened


def measured(order: Order, policy: Policy, reporter: Reporter, what: str) -> tuple[ReturnEstimate, Observations]:
    """The policy's return on the run's held-out episodes, and observations it met."""
    episodes = order.spec.evaluation.episodes
    seed = order.spec.seed
    tell = lambda done: reporter.alive(f"{what}: {done}/{episodes} held-out episodes")  # noqa: E731
    returns, met = play(held_out(order), policy, seed, episodes, tell)
    result = estimate(returns, seed)
    if result is None:
        raise ExportError("spec.evaluation.episodes is 0: nothing was evaluated")
    say(f"{what}: mean {result.mean:.1f} [{result.ci_low:.1f}, {result.ci_high:.1f}] over {episodes} held-out episodes")
    return result, met


def prove(
    order: Order,
    learner: Learner,
    world_size: int,
    store: Store,
    reporter: Reporter,
    durable: Callable[[], str],
    began: float,
) -> Manifest:
    """Export, evaluate and store; `durable` waits for the final checkpoint. Returns the manifest, already durable."""
    spec, network = order.spec, learner.network
    reporter.phase("exporting", "building the ONNX graph")
    facts = {"learnloop.algorithm": spec.algorithm, "learnloop.job": order.job}
    environment = learner.environment
    observations, actions, bounds = environment.observations, environment.actions, environment.bounds
    continuous, shield = bounds is not None, None
    if spec.safety is not None:
        shield = Shield(spec.safety, observations, actions, continuous=continuous)
    body = graph(learner, spec.algorithm, facts, shield)
    policy = OnnxPolicy(body, observations, actions, continuous=continuous)
    reporter.phase("evaluating", "playing held-out episodes")
    baseline_policy = baseline.load(order, store, observations, actions, bounds)
    evaluation, met = measured(order, policy, reporter, "exported policy")
    before, _ = measured(order, baseline_policy, reporter, "baseline")
    parity = verify(order, store, network, policy, met, actions, bounds, shield)
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
        parity=parity,
        **_interventions(environment, order, store),
        wall_seconds=max(0.0, time.time() - began),
        versions=versions(),
        created_at=datetime.now(UTC),
    )
    store.put_manifest(manifest)
    return manifest


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
    return found
