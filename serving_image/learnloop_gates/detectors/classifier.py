"""A classifier in an ONNX file: texts in, the probability of a failure out."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnxruntime

from learnloop_gates.cases import Case, Reply
from learnloop_gates.errors import SuiteError

FAILS = 0.5


def classifier(path: str) -> tuple[str, str, Callable[[Case, Reply], bool]]:
    """Name, digest and verdict of the classifier.

    It takes one input of strings, [n] or [n, 1]. Its last output are probabilities of a failure: [n], [n, 1], or
    [n, 2] with those of a good text first.

    Raises:
        SuiteError: the file is not there, or no such classifier.
    """
    try:
        content = Path(path).read_bytes()
        options = onnxruntime.SessionOptions()
        # One file: others that it names are not read.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common base
        raise SuiteError(f"{path}: no classifier that can be loaded: {error}"[:500]) from None
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(string)":
        raise SuiteError(f"{path}: a classifier takes one input of strings; export it with its tokeniser")
    name, flat = inputs[0].name, len(inputs[0].shape) == 1

    def asks(_: Case, reply: Reply) -> bool:
        texts = np.array([reply.text], dtype=object)
        found = session.run(None, {name: texts if flat else texts.reshape(1, 1)})[-1]
        values = np.asarray(found, dtype=np.float64).reshape(-1)
        if not values.size or not np.isfinite(values).all():
            raise SuiteError(f"{path}: the classifier gives no probability")
        return bool(values[-1] >= FAILS)

    return f"onnx:{Path(path).name}", sha256(content).hexdigest(), asks
