"""What a policy is to the server: observations in; greedy actions and logits, or continuous actions, out."""

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
    """A policy with discrete actions, or with continuous ones."""

    @property
    def continuous(self) -> bool:
        """Actions are vectors, the only output, and there is nothing to sample from: the policy acts greedily."""
        ...

    @property
    def observations(self) -> int | None:
        """Length of an observation; None when any length is taken."""
        ...

    @property
    def actions(self) -> int:
        """How many actions there are, or how many numbers make one."""
        ...

    @property
    def platform(self) -> str:
        """What runs it, in Open Inference Protocol's words."""
        ...

    def run(self, observation: Observations) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """[batch, observations] float32 → greedy actions int64 [batch], logits float32 [batch, actions].

        Continuous: the actions float32 [batch, actions], twice.
        """
        ...


@dataclass(frozen=True)
class UniformPolicy:
    """Every action equally likely: the honest baseline before anything was learned."""

    actions: int
    observations: int | None
    platform: str = "learnloop_uniform"
    continuous: bool = False

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
        self.continuous: bool
        self.observations, self.actions, self.continuous = _signature(self._session)
        self._outputs = OUTPUTS[:1] if self.continuous else OUTPUTS
        self._check_once()

    def run(self, observation: Observations) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """See Policy.run; raises PolicyError when the graph fails or what it gives is not finite."""
        try:
            results = self._session.run(self._outputs, {INPUT: observation})
        except Exception as error:  # as above: no common base class
            raise PolicyError(f"onnxruntime refused the observation: {_first_line(error)}") from error
        if not np.isfinite(results[-1]).all():
            what = "action is" if self.continuous else "logits are"
            raise PolicyError(f"the policy's {what} not finite: the weights are broken or the observation is extreme")
        return results[0], results[-1]

    def _check_once(self) -> None:
        """The declared shapes may lie: one run shows what really comes out."""
        try:
            action, logits = self.run(np.zeros((2, self.observations), dtype=np.float32))
        except PolicyError as error:
            raise ModelError(f"the model loads but does not run on zeros: {error}") from error
        wanted = (2, self.actions) if self.continuous else (2,)
        if action.shape != wanted or logits.shape != (2, self.actions):
            raise ModelError(
                f"outputs: for a batch of 2 action has shape {list(action.shape)} and logits {list(logits.shape)}, "
                f"expected {list(wanted)} and [2, {self.actions}]"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _signature(session: ort.InferenceSession) -> tuple[int, int, bool]:
    """(observations, actions, continuous?) of a policy that keeps to the contract; raises ModelError.

    An `action` of type float says that the policy is continuous; it needs no logits.
    """
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name: node for node in session.get_outputs()}
    if set(inputs) != {INPUT}:
        raise ModelError(f"inputs: the model takes {sorted(inputs)}, expected exactly ['{INPUT}']")
    continuous = "action" in outputs and outputs["action"].type == "tensor(float)"
    needed = OUTPUTS[:1] if continuous else OUTPUTS
    if missing := set(needed) - set(outputs):
        raise ModelError(f"outputs: {sorted(missing)} missing, the model gives {sorted(outputs)}")
    kinds = {INPUT: "tensor(float)", "action": "tensor(float)" if continuous else "tensor(int64)"}
    for node in (inputs[INPUT], *(outputs[name] for name in needed)):
        kind = kinds.get(node.name, "tensor(float)")
        if node.type != kind:
            raise ModelError(f"{node.name}: type is {node.type}, expected {kind}")
    meta: dict[str, Any] = session.get_modelmeta().custom_metadata_map
    return (
        _width(inputs[INPUT].shape, meta, INPUT, "learnloop.observations"),
        _width(outputs[needed[-1]].shape, meta, needed[-1], "learnloop.actions"),
        continuous,
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
