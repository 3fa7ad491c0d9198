"""From trained weights to an ONNX graph, and other formats, that provably do the same."""

from learnloop_trainer.export.graph import build
from learnloop_trainer.export.other_formats import TorchPolicy, torchscript
from learnloop_trainer.export.runtime import Behaving, Exported, OnnxPolicy, check

__all__ = ["Behaving", "Exported", "OnnxPolicy", "TorchPolicy", "build", "check", "torchscript"]
