"""The proof of what an engine handed in: the file is played as it would be served, by learnloop's own code."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_api.wire.engine import POLICY, RESULT, Witness
from learnloop_api.wire.training import Parity
from learnloop_common.acting.policy import ALGORITHM, BEHAVIOUR, BOUNDS, Numbers
from learnloop_environments import VectorEnvironment, errors, simulation
from learnloop_environments.spaces import FIELD, Observations, agents
from learnloop_trainer import baseline_policy as baseline, fallback_policy, training_order
from learnloop_trainer.engines.engine_process import PAGE, EngineMistaken, Handed
from learnloop_trainer.evaluation import held_out_episodes
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.training_run import policy_proof, proof, training_loop

World = simulation.Simulation | VectorEnvironment


class Subject(Protocol):
    """A policy or a model that an engine trains."""

    @property
    def files(self) -> tuple[tuple[str, ...], ...]:
        """Names of the files that it hands in of it: all of one of these groups."""

    def order_fields(self) -> dict[str, Any]:
        """Its fields of the engine's order."""

    def prove(self, run: training_loop.Run, handed: Handed, size: int) -> proof.Exported:
        """Raises EngineMistaken for files that break the contract."""


@dataclass(frozen=True, slots=True)
class Played:
    """A policy of numbers."""

    world: World

    files = ((POLICY,),)

    def order_fields(self) -> dict[str, Any]:
        world, bounds = self.world, self.world.bounds
        spaces: dict[str, Any] = {"observations": world.observations, "actions": world.actions}
        if bounds is None:
            return spaces
        return spaces | {"low": bounds.low.tolist(), "high": bounds.high.tolist(), "choices": bounds.choices}

    def prove(self, run: training_loop.Run, handed: Handed, size: int) -> proof.Exported:
        return prove(run, self.world, handed, size)


def played(order: training_order.Order) -> Played:
    """The run's environment, for its spaces. Raises ConfigError for a team: an engine trains one agent."""
    world = held_out_episodes.sample(order)
    if agents(world) > 1:
        problem = f"has a team of agents, {order.spec.algorithm} trains one"
        raise errors.ConfigError(FIELD, order.environment, problem, "set algorithm to qmix, independent-dqn or maddpg")
    return Played(world)


def prove(run: training_loop.Run, world: World, handed: Handed, size: int) -> proof.Exported:
    order, store, result = run.order, run.store, handed.result
    behaviour, witness = result.behaviour, result.witness
    if behaviour is None or witness is None:
        raise EngineMistaken(f"{RESULT}: behaviour or witness is missing; write both, as {PAGE} says")
    wanted = order.spec.export.behaviour
    if wanted is not None and behaviour != wanted:
        problem = f"{RESULT}: behaviour: {behaviour.kind!r} is not spec.export.behaviour"
        raise EngineMistaken(f"{problem}; hand in the order's behaviour")
    run.reporter.phase("exporting", f"reading the engine's {POLICY}")
    body = stamped(order, world, handed.files[POLICY], behaviour)
    continuous = world.bounds is not None
    try:
        greedy = OnnxPolicy(body, world.observations, world.actions, continuous=continuous)
    except ValueError as error:
        raise EngineMistaken(f"{POLICY}: {error}; export it as {PAGE} says") from None
    serving = baseline.policy(order, baseline.artifact(order, store), world.observations, world.actions, world.bounds)
    judged = policy_proof.by_playing(order, Behaving(greedy, order.spec.seed), greedy, serving, run.reporter)
    observations, outputs = _witness(witness, world.observations, greedy)
    if greedy.served.memory:
        parity = _remembering(greedy, observations, outputs)
    else:
        parity = policy_proof.verify(lambda _: outputs, greedy, observations, 0)
    reported = {f"engine.{name}": version for name, version in result.versions.items()}
    fields = {"behaviour": greedy.behaviour, "parity": parity}
    return proof.Exported(
        body, {**judged.fields, **fields, "world_size": size, "versions": proof.versions() | reported}
    )


def stamped(order: training_order.Order, world: World, policy: bytes, behaviour: Behaviour) -> bytes:
    """The engine's file with learnloop's facts in place of its own: its algorithm, its job, and how it acts."""
    try:
        model = onnx.load_from_string(policy)
    except Exception as error:  # protobuf's and onnx's errors share no base class below Exception
        raise EngineMistaken(f"{POLICY}: is not an ONNX file ({str(error)[:120]}); export one") from None
    if draws := fallback_policy.drawing(model):
        problem = f"{POLICY}: draws random numbers ({', '.join(draws)})"
        raise EngineMistaken(f"{problem}; export it without them, and say how it draws as behaviour")
    facts = {item.key: item.value for item in model.metadata_props if not item.key.startswith("learnloop.")}
    facts |= {ALGORITHM: order.spec.algorithm, "learnloop.job": order.job}
    facts[BEHAVIOUR] = behaviour.model_dump_json(exclude_none=True)
    bounds = world.bounds
    if bounds is not None and behaviour.kind == "sampled":
        first = int(bool(bounds.choices))
        low, high = (tuple(side[first:].tolist()) for side in (bounds.low, bounds.high))
        facts[BOUNDS] = Numbers(low, high, bounds.choices).written()
    onnx.helper.set_model_props(model, facts)
    return bytes(model.SerializeToString(deterministic=True))


def _witness(witness: Witness, observations: int, policy: OnnxPolicy) -> tuple[Observations, Observations]:
    count, both = len(witness.observations), []
    for name, rows, wanted in (
        ("observations", witness.observations, observations),
        ("outputs", witness.outputs, policy.served.actions),
    ):
        if len(rows) != count or any(len(row) != wanted for row in rows):
            raise EngineMistaken(f"{RESULT}: witness.{name}: is not {count} rows of {wanted} numbers; see {PAGE}")
        both.append(np.asarray(rows, dtype=np.float32))
    return both[0], both[1]


class _WithMemory:
    """A policy that remembers, as a function of rows that end with the memory."""

    hybrid = False

    def __init__(self, policy: OnnxPolicy) -> None:
        self._policy, self.continuous = policy, policy.continuous

    def run(self, rows: Observations) -> tuple[NDArray[Any], Observations]:
        size = self._policy.served.memory
        results = self._policy.outputs(rows[:, :-size], rows[:, -size:])
        return results["action"], results["action" if self.continuous else "logits"]

    def logits(self, rows: Observations) -> Observations:
        return self.run(rows)[1]


def _remembering(policy: OnnxPolicy, observations: Observations, outputs: Observations) -> Parity:
    """Parity along one episode: the file's own memory of the observations before is what the network had of them."""
    memory = np.zeros((len(observations) + 1, policy.served.memory), np.float32)
    for number, row in enumerate(observations):
        memory[number + 1] = policy.outputs(row[None], memory[[number]])["next_memory"][0]
    return policy_proof.verify(
        lambda _: outputs, _WithMemory(policy), np.concatenate((observations, memory[:-1]), axis=1), 0
    )
