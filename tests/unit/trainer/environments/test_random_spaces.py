"""Any space of Gymnasium: observed as rows, acted in by what is trained, exported and served, or refused with a fix."""

import contextlib
import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatten
from hypothesis import given, strategies as st

from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_common.acting.policy import BEHAVIOUR, BOUNDS, Numbers, choose
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.foreign_spaces import ActionDecoder, row, width
from learnloop_environments.interfaces.gymnasium_vectors import GymnasiumVector
from learnloop_environments.randomness import Split
from learnloop_environments.spaces import ActionSpace, Bounds
from learnloop_trainer.export.onnx_graph import Deviation, build

FLOATS = (np.float16, np.float32, np.float64)
WHOLE = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.bool_)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    shape = draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    kind = np.dtype(draw(st.sampled_from(FLOATS + WHOLE)))
    if kind.kind == "b":
        return Box(0, 1, shape, kind)
    if kind.kind == "f":
        ends = st.floats(-60_000, 60_000, width=16) | st.floats(-60_000, 60_000, width=64 if kind.itemsize > 4 else 16)
        low, high = sorted((draw(ends), draw(ends | st.just(np.inf))))
        return Box(kind.type(low), kind.type(high), shape, kind)
    edge = np.iinfo(kind)
    ends = st.integers(max(edge.min, -5), 5) | st.integers(max(edge.min, -(2**40)), min(edge.max - 1, 2**40))
    low, high = sorted((draw(ends), draw(ends)))
    return Box(low, high, shape, kind)


LEAVES = st.one_of(
    boxes(),
    st.builds(Discrete, st.integers(1, 9), start=st.integers(-9, 9), dtype=st.sampled_from([np.int64, np.int8])),
    st.builds(
        lambda sizes, start: MultiDiscrete(sizes, start=[start] * len(sizes)),
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.integers(-3, 3),
    ),
    st.just(MultiDiscrete(np.asarray([[2, 3], [1, 2]]))),
    st.builds(MultiBinary, st.sampled_from([1, 3, (2, 2)])),
)
SPACES = st.recursive(
    LEAVES,
    lambda parts: (
        st.lists(parts, min_size=1, max_size=3).map(Tuple)
        | st.dictionaries(st.sampled_from("abc"), parts, min_size=1, max_size=3).map(Dict)
    ),
    max_leaves=4,
)


def decoder_of(space: Space) -> ActionDecoder | None:
    with contextlib.suppress(ConfigError):  # test_gymnasium_spaces.py says what is refused, and with what words
        return ActionDecoder("x", space)
    return None


def leaves(space) -> list[Space]:
    parts = space.spaces.values() if isinstance(space, Dict) else getattr(space, "spaces", None)
    return [space] if parts is None else [leaf for part in parts for leaf in leaves(part)]


def contained(space: Space, decoder: ActionDecoder, actions) -> None:
    for action in actions:
        done = decoder.decode(action)
        assert space.contains(done), (space, action, done)


@given(space=SPACES, seed=st.integers(0, 2**31))
def test_whatever_training_draws_is_done_within_the_space(space: Space, seed: int) -> None:
    if (decoder := decoder_of(space)) is None:
        return
    random, actions = np.random.default_rng(seed), decoder.actions
    contained(space, decoder, actions.sample(lambda count: random.random((20, count))))
    if actions.bounds is not None:
        ends = np.float32([-1, 1])[random.integers(2, size=(20, actions.actions))]
        contained(space, decoder, actions.bounds.scale(ends))
        outputs = random.normal(0, 100, (20, actions.bounds.choices + actions.actions)).astype(np.float32)
        best = actions.bounds.greedy(outputs)
        assert actions.validate(best).all(), "no rounding leads beyond the bounds"
        contained(space, decoder, best)


@given(space=SPACES, seed=st.integers(0, 2**31), sampled=st.booleans())
def test_whatever_the_served_policy_does_is_done_within_the_space(space: Space, seed: int, sampled: bool) -> None:
    if (decoder := decoder_of(space)) is None or decoder.actions.actions > 300:
        return
    policy, random = served(decoder.actions, seed, sampled=sampled), np.random.default_rng(seed)
    observations = random.normal(0, 30, (5, 3)).astype(np.float32)
    decisions = choose(policy, observations, lambda: float(random.random()))
    actions = json.loads(json.dumps([decision.action for decision in decisions]))  # as callers are answered
    assert decoder.actions.validate(np.asarray(actions)).all()
    contained(space, decoder, np.asarray(actions, dtype=np.float32 if decoder.actions.bounds else np.int64))


def served(space: ActionSpace, seed: int, *, sampled: bool) -> OnnxPolicy:
    """A policy of random weights, exported and loaded as a server loads it."""
    random, bounds = np.random.default_rng(seed), space.bounds
    outputs = space.actions if bounds is None else bounds.choices + space.actions - bool(bounds.choices)
    arrays = {
        "policy.0.weight": random.normal(0, 1, (3, outputs)).astype(np.float32),
        "policy.0.bias": np.zeros(outputs, np.float32),
        "log_deviation": np.zeros(outputs, np.float32),
    }
    metadata = {BEHAVIOUR: json.dumps({"kind": "sampled" if sampled else "greedy"})}
    deviation = None
    if bounds is not None:
        first = bool(bounds.choices)
        ends = [tuple(map(float, side[first:])) for side in (bounds.low, bounds.high)]
        metadata[BOUNDS] = Numbers(ends[0], ends[1], bounds.choices).written()
        arrays["log_deviation"] = np.zeros(space.actions - first, np.float32)
        deviation = Deviation("log_deviation", -5.0, 2.0)
    return OnnxPolicy(build(arrays, "policy", "tanh", metadata, bounds, deviation=deviation))


@given(space=SPACES, seed=st.integers(0, 2**31))
def test_whatever_the_space_holds_is_observed_as_gymnasium_flattens_it(space: Space, seed: int) -> None:
    space.seed(seed)
    observation = space.sample()
    observed = row("x", space, observation)
    assert observed.shape == (width("x", space),)
    np.testing.assert_array_equal(observed, flatten(space, observation).astype(np.float32))


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 1, (1,), np.int64),
        Box(-3, 3, (1,), np.int8),
        Box(0, 1, (1,), np.bool_),
        Box(2, 5, (1,), np.uint8),
        Box(-7, -5, (1,), np.int32),
    ],
    ids=str,
)
def test_every_whole_number_of_an_integer_box_has_an_equal_part(space: Box) -> None:
    decoder = ActionDecoder("x", space)
    evenly = np.linspace(-1, 1, 7001, dtype=np.float32)[:, None]
    done = [int(decoder.decode(action)[0]) for action in decoder.actions.bounds.scale(evenly)]
    values, counts = np.unique(done, return_counts=True)
    assert values.tolist() == list(range(int(space.low[0]), int(space.high[0]) + 1))
    assert counts.max() - counts.min() <= 2


class Nested(gymnasium.Env[Any, Any]):
    """Takes nothing but members of its space."""

    observation_space = Dict({"a": Discrete(3), "b": Box(0, 9, (2,), np.int64)})
    action_space = Dict(
        {"go": Discrete(3, start=1), "how": Tuple((Box(-0.4, 0.3, (2,), np.float64), Box(0, 4, (), np.int16)))}
    )

    def reset(self, *, seed: int | None = None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), float(action["how"][1]), False, False, {}


def test_choices_and_numbers_wherever_they_stand_make_one_hybrid_action() -> None:
    world = GymnasiumVector("Nested", Split.TRAINING, 0, range(2), Nested)
    world.reset()
    assert (world.actions, world.bounds is not None and world.bounds.choices) == (4, 3)
    assert world.step(np.float32([[0, -0.4, 0.3, 4.4], [2, -0.40000004, 0.3, -0.5]])).reward.tolist() == [4.0, 0.0]


def test_the_uniform_policy_and_gymnasium_agree_that_a_bound_is_within() -> None:
    bounds = Bounds(np.float32([-0.4]), np.float32([0.3]))
    for ends in np.float32([[[-1]], [[1]]]):
        assert ActionSpace(1, bounds).validate(bounds.scale(ends)).all()
        assert ActionSpace(1, bounds).validate(ActionSpace(1, bounds).denormalise(ends)).all()


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.0, np.inf), (0.0, 1e-60), (-3e38, 3e38), (2.0, 1.0)])
def test_bounds_that_nothing_can_be_scaled_between_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="finite in float32, each low below its high"):
        Bounds(np.float32([low]), np.float32([high]))


def test_a_native_environment_has_bounds_that_are_scaled_between() -> None:
    bounds = make("Pendulum-v1", Split.TRAINING, 0, range(1)).bounds
    assert bounds.scale(np.float32([[-1], [1], [0]])).tolist() == [[-2], [2], [0]]
