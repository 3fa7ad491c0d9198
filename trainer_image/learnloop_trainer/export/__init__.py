"""From trained weights to an ONNX graph that provably does the same."""

from learnloop_trainer.export.graph import build
from learnloop_trainer.export.parity import check
from learnloop_trainer.export.runtime import OnnxPolicy

__all__ = ["OnnxPolicy", "build", "check"]
