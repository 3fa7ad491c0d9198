"""A policy in an ONNX file, on onnxruntime."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from learnloop_common.acting import policy
from learnloop_common.acting.policy import ModelError, Observations, PolicyError, Results

INPUT = "observation"
MEMORY, NEXT = "memory", "next_memory"
"""Of a policy that remembers: an input and an output, zeros where an episode begins."""
MOST_MEMORY = 16_384
DISTRIBUTION = ("mean", "deviation")
LARGEST_DEVIATION = 1e4


class OnnxPolicy:
    """One graph with learnloop's signature: anybody's file, so everything is checked."""

    platform = "onnxruntime_onnx"

    def __init__(self, source: Path | bytes, threads: int = 1) -> None:
        """Load and check a file, or its bytes; raises ModelError."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # A policy is one file. ONNX lets it name others that hold its weights; of bytes those are read that lie below
        # the working directory. They are looked for where there are none.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
        given = source if isinstance(source, bytes) else str(source)
        try:
            self._session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen unrelated classes for an unreadable file
            raise ModelError(f"the file is not a loadable ONNX model: {_first_line(error)}") from error
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        inputs = {node.name: node for node in self._session.get_inputs()}
        outputs = {node.name: node for node in self._session.get_outputs()}
        self.continuous = "action" in outputs and outputs["action"].type == "tensor(float)"
        self.hybrid = self.continuous and "logits" in outputs
        try:
            self.behaviour = policy.behaviour_of(self.metadata, continuous=self.continuous)
            bounds = policy.numbers_of(self.metadata)
        except ValueError as error:
            raise ModelError(str(error)) from None
        drawn = self.continuous and self.behaviour.kind == "sampled"
        self.numbers = bounds if drawn else None
        self._outputs = ["action", *(["logits"] if "logits" in outputs or not self.continuous else [])]
        self._outputs += DISTRIBUTION if drawn else ()
        self._outputs += [policy.UNSHIELDED] if policy.UNSHIELDED in outputs else ()
        self.observations, self.actions = _signature(inputs, outputs, self._outputs, self.metadata)
        if drawn and (self.numbers is None or self.numbers.dimensions != self.actions):
            raise ModelError(
                f"metadata {policy.BOUNDS}: missing, or not of {self.actions} numbers: drawn numbers need it"
            )
        self.memory = 0
        if MEMORY in inputs:
            self.memory = _remembered(inputs, outputs)
            self._outputs.append(NEXT)
        self._check_once()

    def run(self, observation: Observations, memory: Observations | None = None) -> Results:
        """See Policy.run; raises PolicyError when the graph fails or what it gives is not finite."""
        given = {INPUT: observation}
        if self.memory:
            given[MEMORY] = np.zeros((len(observation), self.memory), np.float32) if memory is None else memory
        try:
            result = self._session.run(self._outputs, given)
        except Exception as error:  # as above: no common base class
            raise PolicyError(f"onnxruntime refused the observation: {_first_line(error)}") from error
        results: Results = dict(zip(self._outputs, result, strict=True))
        for name, values in results.items():
            if name != policy.UNSHIELDED and not np.isfinite(values).all():
                subject = "logits are" if name == "logits" else f"{name} is"
                raise PolicyError(
                    f"the policy's {subject} not finite: the weights are broken or the observation is extreme"
                )
        deviation = results.get("deviation")
        if deviation is not None and not ((deviation > 0) & (deviation <= LARGEST_DEVIATION)).all():
            raise PolicyError(f"the policy's deviation is not above 0 and at most {LARGEST_DEVIATION:g}")
        return results

    def _check_once(self) -> None:
        """The declared shapes may lie: one run shows what really comes out."""
        try:
            results = self.run(np.zeros((2, self.observations), dtype=np.float32))
        except PolicyError as error:
            raise ModelError(f"the model loads but does not run on zeros: {error}") from error
        choices = self.numbers.choices if self.numbers is not None else None
        wanted: dict[str, tuple[int | None, ...]] = {
            "action": (2, self.actions) if self.continuous else (2,),
            "logits": (2, self.actions) if not self.continuous else (2, choices),
            **dict.fromkeys(DISTRIBUTION, (2, self.actions - bool(choices))),
            NEXT: (2, self.memory),
            policy.UNSHIELDED: (2, self.actions),
        }
        for name, values in results.items():
            expected = wanted[name]
            if len(values.shape) != len(expected) or not all(
                want in (None, have) for want, have in zip(expected, values.shape, strict=True)
            ):
                shape = [want or "n" for want in expected]
                raise ModelError(f"{name}: for a batch of 2 it has shape {list(values.shape)}, expected {shape}")
        if self.numbers is not None and self.numbers.choices and "logits" not in results:
            raise ModelError("outputs: ['logits'] missing: drawn choices need them")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _signature(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], needed: list[str], facts: Mapping[str, str]
) -> tuple[int, int]:
    """(observations, actions) of a policy that keeps to the contract; raises ModelError."""
    if set(inputs) - {MEMORY} != {INPUT}:
        problem = f"inputs: the model takes {sorted(inputs)}, expected '{INPUT}'"
        raise ModelError(f"{problem}, and '{MEMORY}' where it remembers")
    if missing := set(needed) - set(outputs):
        raise ModelError(f"outputs: {sorted(missing)} missing, the model gives {sorted(outputs)}")
    continuous = outputs["action"].type == "tensor(float)"
    for node in (inputs[INPUT], *(outputs[name] for name in needed)):
        kind = "tensor(int64)" if node.name == "action" and not continuous else "tensor(float)"
        if node.type != kind:
            raise ModelError(f"{node.name}: type is {node.type}, expected {kind}")
    which = "action" if continuous else "logits"
    return (
        _width(inputs[INPUT].shape, facts, INPUT, "learnloop.observations"),
        _width(outputs[which].shape, facts, which, "learnloop.actions"),
    )


def _remembered(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> int:
    """Numbers of the memory; raises ModelError."""
    if NEXT not in outputs:
        raise ModelError(f"outputs: ['{NEXT}'] missing, the model takes '{MEMORY}'")
    for node in (inputs[MEMORY], outputs[NEXT]):
        shape = node.shape
        if node.type != "tensor(float)" or len(shape) != 2 or isinstance(shape[0], int):
            raise ModelError(f"{node.name}: is {node.type} of shape {shape}, expected tensor(float) of [batch, n]")
    size = inputs[MEMORY].shape[1]
    if not isinstance(size, int) or not 1 <= size <= MOST_MEMORY:
        raise ModelError(f"{MEMORY}: has {size} numbers, expected a fixed number from 1 to {MOST_MEMORY}")
    return size


def _width(shape: list[Any], facts: Mapping[str, str], tensor: str, key: str) -> int:
    """Second dimension from the graph, or from the metadata when the graph leaves it open."""
    if len(shape) != 2:
        raise ModelError(f"{tensor}: shape is {shape}, expected [batch, n]")
    declared = str(facts.get(key, ""))
    width = shape[1] if isinstance(shape[1], int) else int(declared) if declared.isascii() and declared.isdigit() else 0
    if not 1 <= width <= 65_536:
        raise ModelError(f"{tensor}: shape is {shape} and metadata {key} is {declared!r}, cannot tell the size")
    if declared and declared != str(width):
        raise ModelError(f"metadata {key}: {declared!r} contradicts the shape {shape} of {tensor}")
    if isinstance(shape[0], int):
        raise ModelError(f"{tensor}: the batch dimension is fixed at {shape[0]}, expected a dynamic one")
    return width
