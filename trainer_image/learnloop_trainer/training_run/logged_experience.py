"""Logged experience as arrays to learn from: an agent's trajectories in the store, or a recorded file.

A recorded file holds one wire.Trajectory as JSON on each line.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from learnloop_api.kinds.training.algorithms import BcParameters, block
from learnloop_api.kinds.training.offline_algorithms import Offline
from learnloop_api.kinds.training.offline_and_meta_algorithms import VtraceParameters
from learnloop_api.wire.trajectory import Step, Trajectory
from learnloop_environments import VectorEnvironment
from learnloop_environments.action_spaces import ActionSpace
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.collectives import Group
from learnloop_trainer.manifest.baseline_policy import fetch
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.recordings.recording import Recording
from learnloop_trainer.store import Store
from learnloop_trainer.store.array_container import pack, unpack
from learnloop_trainer.training_order import Order


def read_file(body: bytes, field: str, uri: str) -> list[Sequence[Step]]:
    """The steps of each trajectory in a recorded file; raises ConfigError naming the line that is none."""
    found: list[Sequence[Step]] = []
    for number, line in enumerate(body.splitlines(), 1):
        try:
            found.append(Trajectory.model_validate_json(line).steps)
        except ValidationError as error:
            problem = f"line {number} is not a trajectory ({error.errors()[0]['msg']})"
            raise ConfigError(field, uri, problem, "record one trajectory as JSON on each line") from None
    return found


def fitting(episodes: Iterable[Sequence[Step]], environment: VectorEnvironment, limit: int) -> Recording | None:
    """At most `limit` steps whose observation and action fit the environment; None when there are none."""
    kept: list[Step] = []
    last: list[bool] = []
    left_out = 0
    for steps in episodes:
        for step in steps[: limit - len(kept)]:
            if _fits(step, environment):
                kept.append(step)
                last.append(False)
            else:
                left_out += 1
                last[-1:] = [True] * bool(last)
        last[-1:] = [True] * bool(last)
    if left_out:
        say(f"{left_out} recorded steps do not fit the environment's observations and actions and are left out")
    if not kept:
        return None
    rest = (
        np.asarray([step.reward for step in kept], dtype=np.float32),
        np.asarray([_log_prob(step, environment) for step in kept], dtype=np.float32),
        np.asarray(last, dtype=np.bool_),
        np.asarray([step.terminated for step in kept], dtype=np.bool_),
    )
    observation = np.asarray([step.observation for step in kept], dtype=np.float32)
    done = [step.action for step in kept]
    if environment.bounds is None:
        return Recording(observation, np.asarray(done, dtype=np.int64), *rest)
    space = ActionSpace.of(environment)
    return Recording(observation, space.normalise(space.project(np.asarray(done, dtype=np.float32))), *rest)


def _log_prob(step: Step, environment: VectorEnvironment) -> float:
    """NaN where it is unknown: not recorded, above 0 for a choice, or a server's 0 for numbers that it did not draw."""
    found = step.log_prob
    if found is None:
        return np.nan
    if environment.bounds is None:
        return found if found <= 0 else np.nan
    return found if step.exploration or found != 0 else np.nan


def _fits(step: Step, environment: VectorEnvironment) -> bool:
    seen, done = step.observation, step.action
    if not isinstance(seen, list) or len(seen) != environment.observations:
        return False
    if not np.isfinite(np.asarray(seen, dtype=np.float32)).all():
        return False
    if environment.bounds is None:
        return isinstance(done, int) and bool(ActionSpace.of(environment).validate(np.asarray([done]))[0])
    return isinstance(done, list) and len(done) == environment.actions and bool(np.isfinite(done).all())


def share(recording: Recording | None, group: Group) -> Recording | None:
    """Collective: rank 0's recording on all ranks."""
    body = None
    if group.place.rank == 0 and recording is not None:
        body = pack(recording.arrays(), {})
    received = group.broadcast(body)
    if not received:
        return None
    return Recording.of(unpack(received)[0])


def recorded(order: Order, group: Group, store: Store | None, environment: VectorEnvironment) -> Recording:
    """Collective: the logged experience a run learns from; raises ConfigError when that is nothing."""
    own = load(order, store, environment) if group.place.rank == 0 and store is not None else None
    recording = share(own, group)
    if recording is None:
        fix = "record experience of this environment first, or correct the name"
        raise ConfigError("spec.data", order.spec.data.environment, "has no recorded steps that fit", fix)
    return recording


def load(order: Order, store: Store, environment: VectorEnvironment) -> Recording | None:
    """From the file the order names, else from the agent it names; raises ConfigError when it names neither."""
    parameters, agent, algorithm = order.parameters, order.spec.data.learning_agent_ref, order.spec.algorithm
    assert isinstance(parameters, BcParameters | VtraceParameters | Offline)  # no other learner asks for a recording
    limit, named = parameters.max_recorded_steps, f"spec.{to_camel(block(algorithm))}"
    if parameters.recording:
        field, fix = f"{named}.recording", "point it to a file with one trajectory as JSON on each line"
        body = fetch(parameters.recording, store, field, fix)
        return fitting(read_file(body, field, parameters.recording), environment, limit)
    if agent is None:
        fix, problem = f"set it, or {named}.recording", "learns from an agent's trajectories"
        raise ConfigError("spec.data.learningAgentRef", "", f"is missing: {algorithm} {problem}", fix)
    credited = isinstance(parameters, VtraceParameters) and parameters.rewards == "policy"
    return fitting(store.trajectories(agent.name, limit, credited=credited), environment, limit)
