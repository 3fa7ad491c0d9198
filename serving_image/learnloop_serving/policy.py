"""What a policy is to the server: observations in, greedy actions and logits out."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Observations = NDArray[np.float32]
INPUT = "observation"
OUTPUTS = ("action", "logits")


class PolicyError(RuntimeError):
    """The policy itself failed on a valid observation."""


class ModelError(ValueError):
    """The file is not a policy this server can run; one sentence saying what is wrong and what is expected."""


class Policy(Protocol):
    """A discrete policy."""

    @property
    def observations(self) -> int | None:
        """Length of an observation; None when any length is taken."""
        ...

    @property
    def actions(self) -> int:
        """How many actions there are."""
        ...

    @property
    def platform(self) -> str:
        """What runs it, in Open Inference Protocol's words."""
        ...

    def run(self, observation: Observations) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """[batch, observations] float32 → greedy actions int64 [batch], logits float32 [batch, actions]."""
        ...


@dataclass(frozen=True)
class UniformPolicy:
    """Every action equally likely: the honest baseline before anything was learned."""

    actions: int
    observations: int | None
    platform: str = "learnloop_uniform"

    def run(self, observation: Observations) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See Policy.run. All logits are 0; the greedy action is 0 by the usual tie rule."""
        batch = observation.shape[0]
        return np.zeros(batch, dtype=np.int64), np.zeros((batch, self.actions), dtype=np.float32)


class OnnxPolicy:
    """One ONNX graph on onnxruntime, one thread: a pod is one core's worth of small batches."""

    platform = "onnxruntime_onnx"

    def __init__(self, path: Path) -> None:
        """Load and check `path`; raises ModelError."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen unrelated classes for an unreadable file
            raise ModelError(f"the file is not a loadable ONNX model: {_first_line(error)}") from error
        self.observations: int
        self.actions: int
        self.observations, self.actions = _signature(self._session)
        self._check_once()

    def run(self, observation: Observations) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """See Policy.run; raises PolicyError when the graph fails or its logits are not finite."""
        try:
            action, logits = self._session.run(OUTPUTS, {INPUT: observation})
        except Exception as error:  # as above: no common base class
            raise PolicyError(f"onnxruntime refused the observation: {_first_line(error)}") from error
        if not np.isfinite(logits).all():
            raise PolicyError(
                "the policy's logits are not finite: the weights are broken or the observation is extreme"
            )
        return action, logits

    def _check_once(self) -> None:
        """The declared shapes may lie: one run shows what really comes out."""
        try:
            action, logits = self.run(np.zeros((2, self.observations), dtype=np.float32))
        except PolicyError as error:
            raise ModelError(f"the model loads but does not run on zeros: {error}") from error
        if action.shape != (2,) or logits.shape != (2, self.actions):
            raise ModelError(
                f"outputs: for a batch of 2 action has shape {list(action.shape)} and logits {list(logits.shape)}, "
                f"expected [2] and [2, {self.actions}]"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _signature(session: ort.InferenceSession) -> tuple[int, int]:
    """(observations, actions) of a policy that keeps to the contract; raises ModelError."""
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name: node for node in session.get_outputs()}
    if set(inputs) != {INPUT}:
        raise ModelError(f"inputs: the model takes {sorted(inputs)}, expected exactly ['{INPUT}']")
    if missing := set(OUTPUTS) - set(outputs):
        raise ModelError(f"outputs: {sorted(missing)} missing, the model gives {sorted(outputs)}")
    for node, kind in (
        (inputs[INPUT], "tensor(float)"),
        (outputs["action"], "tensor(int64)"),
        (outputs["logits"], "tensor(float)"),
    ):
        if node.type != kind:
            raise ModelError(f"{node.name}: type is {node.type}, expected {kind}")
    meta: dict[str, Any] = session.get_modelmeta().custom_metadata_map
    return (
        _width(inputs[INPUT].shape, meta, INPUT, "learnloop.observations"),
        _width(outputs["logits"].shape, meta, "logits", "learnloop.actions"),
    )


def _width(shape: list[Any], meta: dict[str, Any], tensor: str, key: str) -> int:
    """Second dimension from the graph, or from the metadata when the graph leaves it open."""
    if len(shape) != 2:
        raise ModelError(f"{tensor}: shape is {shape}, expected [batch, n]")
    declared = str(meta.get(key, ""))
    width = shape[1] if isinstance(shape[1], int) else int(declared) if declared.isdigit() else 0
    if not 1 <= width <= 65_536:
        raise ModelError(f"{tensor}: shape is {shape} and metadata {key} is {declared!r}, cannot tell the size")
    if declared and declared != str(width):
        raise ModelError(f"metadata {key}: {declared!r} contradicts the shape {shape} of {tensor}")
    if isinstance(shape[0], int):
        raise ModelError(f"{tensor}: the batch dimension is fixed at {shape[0]}, expected a dynamic one")
    return width


def measure(policy: Policy) -> float:
    """Seconds one observation takes, the median of five runs after a warm-up."""
    observation = np.zeros((1, policy.observations or 1), dtype=np.float32)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        policy.run(observation)
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[2]
