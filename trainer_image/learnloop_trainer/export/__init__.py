"""From trained weights to an ONNX graph, and other formats, that provably do the same."""

from learnloop_trainer.export.exported_policy import Behaving, Exported, OnnxPolicy, check
from learnloop_trainer.export.onnx_graph import build
from learnloop_trainer.export.other_formats import TorchPolicy, torchscript

__all__ = ["Behaving", "Exported", "OnnxPolicy", "TorchPolicy", "build", "check", "torchscript"]
