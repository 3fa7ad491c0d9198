"""A policy to begin with or to beat is anybody's file."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from learnloop_trainer.export.other_formats import read


@pytest.mark.parametrize("location", ["token", "deep/../token", "/etc/hostname"])
def test_weights_are_read_from_no_other_file(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be weights of the run's own artifact, which everybody of the namespace reads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "token").write_bytes(b"secret")
    outside = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[6], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value=location)
    model: onnx.ModelProto = helper.make_model(helper.make_graph([], "policy", [], [], [outside]))
    with pytest.raises(ValueError, match="another file, which is not read"):
        read(model.SerializeToString())
