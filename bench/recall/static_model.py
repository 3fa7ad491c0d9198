"""A static embedder distilled from a BERT sentence-transformer: `python -m bench.recall.static_model MODEL DIRECTORY`.

Every piece of the vocabulary goes through the model once, by itself; principal components and a weight by how rare the
piece is make a table of it (as Tulkens and van Dongen, 2024, model2vec, do). A text is the mean of its pieces' rows:
no network runs when it is embedded, which takes a twentieth of the time. MODEL is that of `bench.recall.minilm`;
DIRECTORY becomes what `LEARNLOOP_EMBEDDER=static:///DIRECTORY` takes, in 16-bit numbers (16 MB).
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from bench.recall.minilm import bert, tensors
from learnloop_dataplane.embedding.static_table import TENSOR

DIMENSIONS = 256
TOGETHER = 256  # pieces of the vocabulary that go through the model at once
SPECIAL = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")


def table(source: Path, pieces: list[str]) -> NDArray[np.float32]:
    """The vector of each piece, float32 [pieces, DIMENSIONS]; of the special ones, zero."""
    states = _states(source, pieces)
    centred = states - states.mean(axis=0)
    _, components = np.linalg.eigh(centred.T @ centred)
    projected = centred @ components[:, ::-1][:, :DIMENSIONS]
    # The vocabulary is in the order of how often its pieces occur: by Zipf's law a piece's rank tells its rarity.
    projected *= np.log1p(np.arange(1, len(pieces) + 1))[:, None]
    for place, piece in enumerate(pieces):
        if piece in SPECIAL or piece.startswith("[unused"):
            projected[place] = 0.0
    scale = float(np.linalg.norm(projected, axis=1).mean())
    found: NDArray[np.float32] = (projected / max(scale, 1e-9)).astype(np.float32)
    return found


def _states(source: Path, pieces: list[str]) -> NDArray[np.float32]:
    import onnxruntime

    told = json.loads((source / "config.json").read_text())
    weights = {name.removeprefix("bert."): value for name, value in tensors(source / "model.safetensors").items()}
    graph = bert(weights, told["num_hidden_layers"], told["num_attention_heads"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    begin, end = pieces.index("[CLS]"), pieces.index("[SEP]")
    found = []
    for start in range(0, len(pieces), TOGETHER):
        own = np.arange(start, min(start + TOGETHER, len(pieces)))
        ids = np.stack([np.full_like(own, begin), own, np.full_like(own, end)], axis=1).astype(np.int64)
        feeds: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
        found.append(session.run(None, feeds)[0].mean(axis=1))
    return np.concatenate(found)


def export(source: Path, directory: Path) -> Path:
    """Writes `model.safetensors` and `vocab.txt` and returns the directory."""
    pieces = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    directory.mkdir(parents=True, exist_ok=True)
    save_file({TENSOR: table(source, pieces).astype(np.float16)}, directory / "model.safetensors")
    shutil.copyfile(source / "vocab.txt", directory / "vocab.txt")
    return directory


def main() -> None:
    """Exports."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall.static_model", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    print(export(arguments.model, arguments.directory))


if __name__ == "__main__":
    main()
