"""An ONNX policy on onnxruntime, as a policy server would run it."""

import os
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from learnloop_environments.base import Observations


class OnnxPolicy:
    """Greedy actions of a graph with learnloop's signature."""

    def __init__(self, body: bytes, observations: int, actions: int, *, continuous: bool = False) -> None:
        """Raises ValueError, in one sentence, when it is no such graph or its sizes differ."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions share no base class below Exception
            raise ValueError(f"is not a loadable ONNX model ({str(error)[:200]})") from None
        inputs = {item.name: item for item in self._session.get_inputs()}
        outputs = {item.name for item in self._session.get_outputs()}
        self.continuous = continuous
        self._outputs = ["action"] if continuous else ["action", "logits"]
        self.hybrid = continuous and "logits" in outputs
        if set(inputs) != {"observation"} or not set(self._outputs) <= outputs:
            raise ValueError(f"has inputs {sorted(inputs)} and outputs {sorted(outputs)}")
        width = inputs["observation"].shape[-1]
        if isinstance(width, int) and width != observations:
            raise ValueError(f"takes {width} observations, the environment has {observations}")
        probe = self.run(np.zeros((1, observations), dtype=np.float32))[1]
        if probe.shape != (1, actions):
            raise ValueError(f"has {probe.shape[-1]} actions, the environment has {actions}")

    def run(self, observation: Observations) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Actions [n] and logits [n, actions] for observations [n, observations]; continuous actions stand for both."""
        try:
            results = self._session.run(self._outputs, {"observation": observation})
        except Exception as error:  # as above
            raise ValueError(f"fails on a batch of {len(observation)} ({str(error)[:200]})") from None
        return np.asarray(results[0]), np.asarray(results[-1])

    def logits(self, observation: Observations) -> NDArray[np.float32]:
        """Those of the choices [n, choices], of discrete and hybrid policies."""
        return np.asarray(self._session.run(["logits"], {"observation": observation})[0])

    def act(self, observation: Observations) -> NDArray[Any]:
        """See Policy."""
        return self.run(observation)[0]
