"""A forbidden action is never executed, whatever the policy says, in training and in the exported graph."""

import numpy as np
import onnx
import onnxruntime
import pytest

from learnloop_api.kinds.training.environment_conditions import Safety
from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import MASKED, Bounds
from learnloop_trainer.action_shield import Shield
from learnloop_trainer.export import build
from learnloop_trainer.neural.networks import dense

BOUNDS = Bounds(np.full(3, -2, dtype=np.float32), np.full(3, 2, dtype=np.float32))
OBSERVATIONS, DIMENSIONS = 4, 3
SLOW = {"name": "slow near things", "when": [{"observation": 1, "below": 0.5}], "components": [0, 1], "maxNorm": 0.5}


def continuous_set(random: np.random.Generator) -> Safety:
    """A random constraint set with a fallback of zeros, which all of them allow."""

    def condition() -> dict:
        side = random.choice(["below", "above"])
        return {"observation": int(random.integers(OBSERVATIONS)), str(side): float(random.normal())}

    constraints = []
    for number in range(random.integers(1, 6)):
        chosen = random.permutation(DIMENSIONS)[: random.integers(1, DIMENSIONS + 1)].tolist()
        limits = {
            "min": -float(random.uniform(0, 1)),
            "max": float(random.uniform(0, 1)),
            "maxNorm": float(random.uniform(0, 1)),
        }
        limited = random.permutation(list(limits))[: random.integers(1, 4)].tolist()
        when = [condition() for _ in range(random.integers(0, 3))]
        constraints.append(
            {"name": f"c{number}", "components": chosen, "when": when, **{name: limits[name] for name in limited}}
        )
    return Safety.model_validate({"constraints": constraints, "fallback": [0.0] * DIMENSIONS})


def wild(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Policy outputs of all sizes, with NaN and infinities among them."""
    output = (random.normal(size=shape) * 10.0 ** random.uniform(-3, 30, shape)).astype(np.float32)
    output[random.random(shape) < 0.01] = np.nan
    output[random.random(shape) < 0.01] = np.inf
    output[random.random(shape) < 0.01] = -np.inf
    return output


def test_none_of_a_million_random_policy_outputs_is_executed_against_a_constraint() -> None:
    random, count = np.random.default_rng(0), 50_000
    replaced = 0
    for _ in range(10):  # 500,000 continuous ones
        shield = Shield(continuous_set(random), OBSERVATIONS, DIMENSIONS, continuous=True)
        observations = random.normal(size=(count, OBSERVATIONS)).astype(np.float32)
        safe, _ = shield.project(observations, wild(random, (count, DIMENSIONS)))
        assert np.isfinite(safe).all()
        assert not shield.broken(observations, safe).any()
        replaced += count
    for _ in range(10):  # 500,000 discrete ones, some of them no action at all
        forbidden = [
            {"name": "f", "forbid": random.permutation(5)[:3].tolist(), "when": [{"observation": 0, "above": -0.5}]}
        ]
        fallback = next(action for action in range(5) if action not in forbidden[0]["forbid"])
        shield = Shield(
            Safety.model_validate({"constraints": forbidden, "fallback": [fallback]}), 4, 5, continuous=False
        )
        observations = random.normal(size=(count, OBSERVATIONS)).astype(np.float32)
        safe, _ = shield.project(observations, random.integers(-3, 9, count))
        assert ((safe >= 0) & (safe < 5)).all()
        assert not shield.broken(observations, safe).any()
        replaced += count
    assert replaced == 1_000_000


def test_an_action_within_the_limits_is_left_alone_and_one_beyond_moves_no_further_than_needed() -> None:
    shield = Shield(Safety.model_validate({"constraints": [SLOW], "fallback": [0, 0, 0]}), 4, 3, continuous=True)
    near, far = np.zeros((1, 4), dtype=np.float32), np.ones((1, 4), dtype=np.float32)
    fast, slow = np.array([[3.0, 4, 9]], dtype=np.float32), np.array([[0.1, 0.2, 9]], dtype=np.float32)
    assert shield.project(far, fast)[0].tolist() == fast.tolist()
    assert shield.project(near, slow)[0].tolist() == slow.tolist()
    assert shield.project(near, fast)[0][0] == pytest.approx([0.3, 0.4, 9])


def test_limits_that_contradict_each_other_lead_to_the_fallback() -> None:
    constraints = [
        {"name": "forward", "components": [0], "min": 0.9, "when": [{"observation": 0, "above": 0}]},
        {"name": "slow", "components": [0, 1, 2], "maxNorm": 0.5, "when": [{"observation": 1, "above": 0}]},
    ]
    with pytest.raises(ConfigError, match=r"fallback: .* breaks the constraint slow"):
        Shield(Safety.model_validate({"constraints": constraints, "fallback": [0.9, 0, 0]}), 4, 3, continuous=True)
    constraints[0] = {"name": "not left", "components": [1], "min": 0.4, "max": 0.5}
    constraints[1] |= {"when": [], "maxNorm": 0.45}
    shield = Shield(Safety.model_validate({"constraints": constraints, "fallback": [0, 0.4, 0]}), 4, 3, continuous=True)
    safe, fallback = shield.project(np.zeros((1, 4), dtype=np.float32), np.array([[1.0, 0.4, 1.0]], dtype=np.float32))
    assert fallback.tolist() == [True]
    assert safe[0] == pytest.approx([0, 0.4, 0])


@pytest.mark.parametrize(
    ("constraint", "fallback", "problem"),
    [
        ({"name": "x", "forbid": [0]}, [0, 0, 0], r"constraints\[0\].forbid: 'x' does not fit continuous"),
        (
            {"name": "x", "components": [7], "max": 1},
            [0, 0, 0],
            r"constraints\[0\].components: '7' does not exist; .* 2",
        ),
        ({**SLOW, "when": [{"observation": 4, "below": 1}]}, [0, 0, 0], r"constraints\[0\].when: '4' does not exist"),
        (SLOW, [0], r"fallback: .* wrong length; give 3"),
    ],
)
def test_constraints_that_fit_no_action_are_refused_with_field_and_fix(constraint, fallback, problem):
    with pytest.raises(ConfigError, match=problem):
        Shield(Safety.model_validate({"constraints": [constraint], "fallback": fallback}), 4, 3, continuous=True)


def outputs(body: bytes, observations: np.ndarray, names: list[str]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(body, providers=["CPUExecutionProvider"])
    return list(session.run(names, {"observation": observations}))


def test_the_exported_graph_projects_as_the_shield_does() -> None:
    random = np.random.default_rng(2)
    observations = random.normal(size=(3000, OBSERVATIONS)).astype(np.float32)
    for number in range(8):
        safety = continuous_set(random)
        shield = Shield(safety, OBSERVATIONS, DIMENSIONS, continuous=True)
        weights = dense("actor", [OBSERVATIONS, 8, 2 * DIMENSIONS], 5.0, number, 0)
        (plain,) = outputs(build(weights, "actor", "relu", {}, BOUNDS), observations, ["action"])
        (safe,) = outputs(build(weights, "actor", "relu", {}, BOUNDS, shield), observations, ["action"])
        assert not shield.broken(observations, safe).any()
        assert safe == pytest.approx(shield.project(observations, plain)[0], abs=1e-5)
        assert shield.broken(observations, plain).any()


def test_the_exported_graph_masks_forbidden_actions_and_answers_nan_with_the_fallback() -> None:
    constraint = {"name": "f", "forbid": [0, 2], "when": [{"observation": 0, "above": 0}]}
    safety = Safety.model_validate({"constraints": [constraint], "fallback": [1]})
    shield = Shield(safety, 4, 3, continuous=False)
    weights = dense("q", [4, 8, 3], 5.0, 0, 0)
    observations = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    plain, _ = outputs(build(weights, "q", "relu", {}), observations, ["action", "logits"])
    action, logits = outputs(build(weights, "q", "relu", {}, None, shield), observations, ["action", "logits"])
    free = observations[:, 0] <= 0
    assert (action[~free] == 1).all()
    assert np.array_equal(action[free], plain[free])
    assert (logits[~free][:, [0, 2]] == MASKED).all()
    weights["q.1.bias"][:] = np.nan
    assert (outputs(build(weights, "q", "relu", {}, None, shield), observations, ["action"])[0] == 1).all()


def replaced_by_policy(safety: Safety) -> Safety:
    """The same limits with a fallback policy."""
    named = {"uri": "file:///conservative.onnx", "sha256": "0" * 64}
    return Safety.model_validate({**safety.to_kube(), "fallback": None, "fallbackPolicy": named})


def conservative(observations: int, actions: int, bounds: Bounds | None = None) -> bytes:
    outputs = 2 * actions if bounds else actions
    name = "actor" if bounds else "q"
    return build(dense(name, [observations, 8, outputs], 5.0, 99, 0), name, "relu", {}, bounds)


def drawing(observations: int, actions: int, bounds: Bounds) -> bytes:
    """A policy with noise of its own, in a branch."""
    model = onnx.load_from_string(conservative(observations, actions, bounds))
    info = onnx.helper.make_tensor_value_info("noise", onnx.TensorProto.FLOAT, [1])
    noise = onnx.helper.make_node("RandomNormal", [], ["noise"], shape=[1])
    branch = onnx.helper.make_graph([noise], "branch", [], [info])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(onnx.helper.make_node("If", ["yes"], ["unused"], then_branch=branch, else_branch=branch))
    return model.SerializeToString()


def test_a_fallback_policy_acts_within_the_limits_where_numbers_are_beyond_them_or_none() -> None:
    random, body = np.random.default_rng(3), conservative(OBSERVATIONS, DIMENSIONS, BOUNDS)
    observations = random.normal(size=(3000, OBSERVATIONS)).astype(np.float32)
    (careful,) = outputs(body, observations, ["action"])
    for number in range(8):
        safety = replaced_by_policy(continuous_set(random))
        shield = Shield(safety, OBSERVATIONS, DIMENSIONS, continuous=True, policy=body)
        wanted = wild(random, (len(observations), DIMENSIONS))
        safe, fallback = shield.project(observations, wanted)
        beyond = shield.broken(observations, wanted).any(axis=0) | ~np.isfinite(wanted).all(axis=1)
        assert np.array_equal(fallback, beyond)
        assert np.array_equal(safe[~beyond], wanted[~beyond])
        assert not shield.broken(observations, safe).any()
        fine = beyond & ~shield.broken(observations, careful).any(axis=0)
        assert safe[fine] == pytest.approx(careful[fine], abs=1e-5)
        weights = dense("actor", [OBSERVATIONS, 8, 2 * DIMENSIONS], 5.0, number, 0)
        (plain,) = outputs(build(weights, "actor", "relu", {}, BOUNDS), observations, ["action"])
        (served,) = outputs(build(weights, "actor", "relu", {}, BOUNDS, shield), observations, ["action"])
        sure = ~shield.unsure(observations, plain, 1e-5)
        assert served[sure] == pytest.approx(shield.project(observations, plain)[0][sure], abs=1e-5)
        assert sure.mean() > 0.99
    weights["actor.1.bias"][:] = np.nan
    (served,) = outputs(build(weights, "actor", "relu", {}, BOUNDS, shield), observations, ["action"])
    assert np.isfinite(served).all()
    assert not shield.broken(observations, served).any()


@pytest.mark.parametrize(
    ("changes", "body", "problem"),
    [
        ({}, conservative(5, 3, BOUNDS), r"fallbackPolicy: .* takes 5 observations for 3 numbers, .* 4 for 3 numbers"),
        ({}, conservative(4, 3), r"fallbackPolicy: .* takes 4 observations for 3 choices, .* 4 for 3 numbers"),
        ({}, b"weights", r"fallbackPolicy: .* not a loadable ONNX model.*; name a policy for the same environment"),
        ({}, drawing(4, 3, BOUNDS), r"fallbackPolicy: .* draws random numbers: RandomNormal; name"),
        ({"min": 2}, conservative(4, 3, BOUNDS), r"constraints: 'slow near things, apart' leave no action that obeys"),
    ],
)
def test_a_fallback_policy_that_cannot_act_here_is_refused(changes: dict, body: bytes, problem: str) -> None:
    constraints = [SLOW, {"name": "apart", "components": [0], "max": 3, **changes}]
    named = {"uri": "file:///conservative.onnx", "sha256": "0" * 64}
    safety = Safety.model_validate({"constraints": constraints, "fallbackPolicy": named})
    with pytest.raises(ConfigError, match=problem):
        Shield(safety, 4, 3, continuous=True, policy=body)


@pytest.mark.parametrize("least", [-1e30, -2e30])
def test_a_fallback_policy_that_masks_by_itself_never_does_what_is_forbidden(least: float) -> None:
    own = {"q.0.weight": np.zeros((2, 3), np.float32), "q.0.bias": np.float32([least, least, 0])}
    safety = {"constraints": [{"name": "never", "forbid": [0, 2]}], "fallback": [1]}
    shield = Shield(
        replaced_by_policy(Safety.model_validate(safety)), 2, 3, continuous=False, policy=build(own, "q", "relu", {})
    )
    wanted = {**own, "q.0.bias": np.float32([5, 0, 0])}
    state = np.zeros((1, 2), dtype=np.float32)
    assert outputs(build(wanted, "q", "relu", {}, None, shield), state, ["action"])[0].tolist() == [1]
    assert shield.project(state, np.asarray([0]))[0].tolist() == [1]


def test_a_fallback_policy_stays_within_the_bounds_and_chooses_where_the_environment_has_choices() -> None:
    wide = Bounds(np.full(3, -100, np.float32), np.full(3, 100, np.float32))
    body, states = conservative(4, 3, wide), np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    limits = {"constraints": [{"name": "little", "components": [1], "max": -0.5}], "fallback": [0, -1, 0]}
    safety, spaces = replaced_by_policy(Safety.model_validate(limits)), {"continuous": True, "policy": body}
    shield = Shield(safety, 4, 3, **spaces, bounds=BOUNDS)
    weights = dense("actor", [4, 8, 6], 5.0, 1, 0)
    (served,) = outputs(build(weights, "actor", "relu", {}, BOUNDS, shield), states, ["action"])
    (plain,) = outputs(build(weights, "actor", "relu", {}, BOUNDS), states, ["action"])
    assert np.abs(served).max() <= 2
    assert served == pytest.approx(shield.project(states, plain)[0], abs=1e-5)
    with pytest.raises(
        ConfigError, match=r"fallbackPolicy: .* has a choice of 0 before its numbers, the environment 3"
    ):
        Shield(safety, 4, 3, **spaces, bounds=Bounds(np.float32([0, -1, -1]), np.float32([2, 1, 1]), choices=3))
