"""TorchScript does what the ONNX graph does."""

import io
import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.environment_conditions import Safety
from learnloop_environments.spaces import Bounds
from learnloop_trainer.action_shield import Shield
from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import ExportError
from learnloop_trainer.export import OnnxPolicy, TorchPolicy, build, check, torchscript
from learnloop_trainer.export.other_formats import TorchGraph
from learnloop_trainer.neural.networks import dense
from learnloop_trainer.neural.observation_normalisation import Normaliser
from learnloop_trainer.training_run.policy_proof import verify

OBSERVATIONS = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32) * np.float32(3)
ENDS = np.float32([1, 2])
CIRCLE = {"name": "circle", "components": [0, 1], "maxNorm": 0.7, "when": [{"observation": 0, "above": 0.0}]}
BAND = {"name": "band", "components": [1], "min": -0.2, "max": 0.5, "when": [{"observation": 1, "below": 1.0}]}
NEVER = {"name": "never-2", "forbid": [2], "when": [{"observation": 2, "above": -1.0}]}


def safe(constraints: list[dict[str, object]], fallback: list[float], actions: int, *, continuous: bool) -> Shield:
    safety = Safety.model_validate({"constraints": constraints, "fallback": fallback})
    return Shield(safety, 3, actions, continuous=continuous)


def graphs() -> Iterator[tuple[str, bytes, int, bool]]:
    """Name, graph, actions, continuous."""
    facts = {"learnloop.job": "j"}
    normaliser = Normaliser(3)
    normaliser.see(OBSERVATIONS + np.float32(5))
    normaliser.absorb(Alone())
    plain = dense("p", [3, 8, 8, 4], 2.0, 0, 0)
    yield "discrete", build(plain, "p", "relu", facts), 4, False
    yield "normalised", build(plain | normaliser.arrays(), "p", "tanh", facts), 4, False
    shield = safe([NEVER], [0.0], 4, continuous=False)
    yield "masked", build(plain, "p", "tanh", facts, None, shield), 4, False
    two = dense("meta", [3, 8, 2], 1.0, 0, 1) | dense("p", [5, 8, 4], 2.0, 0, 2)
    yield "hierarchical", build(two, "p", "relu", facts, chooser="meta"), 4, False
    numbers, bounds = dense("p", [3, 8, 4], 2.0, 0, 3), Bounds(-ENDS, ENDS)
    yield "continuous", build(numbers, "p", "relu", facts, bounds), 2, True
    shield = safe([CIRCLE, BAND], [0.0, 0.0], 2, continuous=True)
    yield "projected", build(numbers, "p", "relu", facts, bounds, shield), 2, True
    hybrid = Bounds(np.float32([0, -1]), np.float32([2, 1]), 3)
    yield "hybrid", build(numbers, "p", "relu", facts, hybrid), 2, True


@pytest.mark.parametrize(("name", "body", "actions", "continuous"), [pytest.param(*g, id=g[0]) for g in graphs()])
def test_torchscript_does_what_the_graph_does_at_every_batch_size(name, body, actions, continuous):
    policy = OnnxPolicy(body, 3, actions, continuous=continuous)
    script = TorchPolicy(torchscript(body), continuous=continuous, hybrid=policy.hybrid)
    parity = check(lambda observations: policy.run(observations)[1], script, OBSERVATIONS, 0)
    assert parity.passed, (name, parity)
    assert policy.hybrid == (name == "hybrid")


def test_the_facts_travel_along() -> None:
    _, body, _, _ = next(graphs())
    facts = {"learnloop.json": ""}
    torch.jit.load(io.BytesIO(torchscript(body)), _extra_files=facts)
    metadata = json.loads(facts["learnloop.json"])
    assert metadata == {"learnloop.job": "j", "learnloop.actions": "4", "learnloop.observations": "3"}


def test_a_format_that_decides_otherwise_is_never_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    _, body, actions, _ = next(graphs())
    policy, forward = OnnxPolicy(body, 3, actions), TorchGraph.forward
    monkeypatch.setattr(TorchGraph, "forward", lambda self, observations: forward(self, observations * 1.01))
    script = TorchPolicy(torchscript(body), continuous=False)
    with pytest.raises(ExportError, match=r"actions agree on .*; nothing was stored"):
        verify(lambda observations: policy.run(observations)[1], script, OBSERVATIONS, 0)


def test_what_cannot_be_recorded_or_loaded_again_is_said_in_one_sentence() -> None:
    _, body, _, _ = next(graphs())
    with pytest.raises(ExportError, match="the exported torchscript cannot be loaded again"):
        TorchPolicy(body, continuous=False)
    with pytest.raises(ExportError, match=r"cannot be exported as torchscript.*nothing was stored"):
        torchscript(b"no graph")
