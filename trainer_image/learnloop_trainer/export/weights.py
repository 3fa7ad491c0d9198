"""An exported policy read back: its weights, and what it says of itself."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper


def read(body: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Weights by name and metadata of a serialised ONNX graph; raises ValueError for what is none."""
    try:
        model = onnx.load_from_string(body)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
            raise ValueError("its weights are said to lie in another file, which is not read")
        weights = {tensor.name: np.array(numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}
    except Exception as error:  # protobuf's, numpy's and onnx's errors share no base class below Exception
        raise ValueError(f"is no ONNX file ({str(error)[:120]})") from None
    return weights, {item.key: item.value for item in model.metadata_props}
