"""The files that are laid out before a model server starts."""

import hashlib
import json
import os
import struct
import subprocess
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from learnloop_common.acting.policy import ModelError
from learnloop_gateway.fetch_weights import base_alone, folder_digest, lay_out, metadata_of, prepare, verify
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import settings


def tensors(path: Path, **metadata: str) -> Path:
    head = json.dumps({"__metadata__": metadata, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"\0\0\0\0")
    return path


def test_the_digest_of_a_folder_is_the_one_that_the_field_says_how_to_print(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "Z").write_text("z")
    command = "find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum"
    digest = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    assert folder_digest(tmp_path) == digest.split()[0]
    verify(tmp_path, folder_digest(tmp_path))
    with pytest.raises(ModelError, match=r"languageModel\.base\.sha256: .* expected aa"):
        verify(tmp_path, "aa")
    with pytest.raises(ModelError, match="is not a folder"):
        verify(tmp_path / "missing", "aa")


@pytest.mark.parametrize("planted", ["link", "pipe", "folded"])
def test_a_folder_with_what_its_digest_does_not_cover_is_no_base_model(tmp_path: Path, planted: str) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "a.json").write_text("1")
    (folder / "b.json").write_text("2")
    digest = folder_digest(folder)
    if planted == "link":
        (tmp_path / "elsewhere").write_text("{}")
        (folder / "config.json").symlink_to(tmp_path / "elsewhere")
    elif planted == "pipe":
        os.mkfifo(folder / "config.json")
    else:  # two lines of the digest's text, in the name of one file
        two = hashlib.sha256(b"2").hexdigest()
        (folder / "b.json").unlink()
        (folder / f"a.json\n{two}  .").mkdir()
        (folder / "a.json").rename(folder / f"a.json\n{two}  ." / "b.json")
    assert folder_digest(folder) == digest
    with pytest.raises(ModelError, match="the digest does not cover it"):
        verify(folder, digest)


def test_a_header_nested_deeper_than_a_parser_goes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    head = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (tmp_path / "weights").write_bytes(struct.pack("<Q", len(head)) + head)
    with pytest.raises(ModelError, match="not a safetensors file"):
        metadata_of(tmp_path / "weights")


def test_an_adapter_is_what_vllm_loads(tmp_path: Path) -> None:
    file = tensors(tmp_path / "fetched", **{"learnloop.kind": "adapter", "adapter_config.json": '{"r": 8}'})
    layout = lay_out(file, "vllm", Path("/base"), tmp_path, rank=16, gguf="")
    assert layout[-2:] == ["--lora-modules", f"arm={tmp_path}"]
    assert "--max-lora-rank=16" in layout
    assert json.loads((tmp_path / "adapter_config.json").read_text()) == {"r": 8}
    assert (tmp_path / "adapter_model.safetensors").is_file()


def test_whole_weights_stand_beside_the_tokeniser_of_the_base(tmp_path: Path) -> None:
    write_folder(tmp_path / "base")
    (tmp_path / "arm").mkdir()
    file = tensors(tmp_path / "fetched", **{"learnloop.kind": "weights"})
    layout = lay_out(file, "vllm", tmp_path / "base", tmp_path / "arm", rank=16, gguf="")
    assert layout == [f"--model={tmp_path / 'arm'}", "--served-model-name=arm"]
    assert {path.name for path in (tmp_path / "arm").iterdir()} >= {
        "model.safetensors",
        "tokenizer.json",
        "config.json",
    }


def test_llama_cpp_takes_gguf_and_is_told_so_otherwise(tmp_path: Path) -> None:
    (tmp_path / "fetched").write_bytes(b"GGUF....")
    layout = lay_out(tmp_path / "fetched", "llama.cpp", Path("/base"), tmp_path, rank=1, gguf="m.gguf")
    assert layout == ["--model", "/base/m.gguf", "--lora", str(tmp_path / "adapter.gguf")]
    assert base_alone("llama.cpp", Path("/base"), "m.gguf") == ["--model", "/base/m.gguf"]
    with pytest.raises(ModelError, match="serves adapters and GGUF files"):
        lay_out(tensors(tmp_path / "other"), "llama.cpp", Path("/base"), tmp_path, rank=1, gguf="m.gguf")


def test_an_adapter_is_made_into_what_llama_cpp_loads(tmp_path: Path) -> None:
    name = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"
    own = np.arange(8, dtype=np.float32).reshape(2, 4)
    metadata = {"learnloop.kind": "adapter", "adapter_config.json": '{"lora_alpha": 16}'}
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({name: own}, tmp_path / "fetched", metadata)
    arguments = lay_out(tmp_path / "fetched", "llama.cpp", tmp_path, tmp_path, rank=1, gguf="m.gguf")
    assert arguments[2:] == ["--lora", str(tmp_path / "adapter.gguf")]
    reader = gguf.GGUFReader(tmp_path / "adapter.gguf")
    assert reader.fields["adapter.lora.alpha"].contents() == 16.0
    assert np.array_equal(reader.tensors[0].data, own)
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["Strange"]}))
    save_file({name: own}, tmp_path / "fetched", metadata)
    with pytest.raises(ModelError, match="Strange"):
        lay_out(tmp_path / "fetched", "llama.cpp", tmp_path, tmp_path, rank=1, gguf="m.gguf")


@pytest.mark.parametrize("body", [b"", b"\xff" * 8, struct.pack("<Q", 4) + b"nope"])
def test_what_is_no_safetensors_file_says_so(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "fetched").write_bytes(body)
    with pytest.raises(ModelError, match="not a safetensors file"):
        lay_out(tmp_path / "fetched", "vllm", Path("/base"), tmp_path, rank=1, gguf="")


async def test_an_arm_is_fetched_verified_and_named_in_the_servers_arguments(tmp_path: Path) -> None:
    write_folder(tmp_path / "base")
    file = tensors(tmp_path / "adapter", **{"learnloop.kind": "adapter"})
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    model = {"base": {"uri": "file:///base", "sha256": folder_digest(tmp_path / "base")}}
    env = {
        "LEARNLOOP_SERVER_KIND": "vllm",
        "LEARNLOOP_BASE_FOLDER": str(tmp_path / "base"),
        "LEARNLOOP_WEIGHTS_FOLDER": str(tmp_path / "arm"),
        "LEARNLOOP_LANGUAGE_MODEL": json.dumps(model),
    }
    await prepare(settings(LEARNLOOP_MODEL_URI=f"file://{file}", LEARNLOOP_MODEL_SHA256=sha256), env)
    assert f"arm={tmp_path / 'arm'}" in (tmp_path / "arm" / "arguments").read_text()
    with pytest.raises(ModelError, match="expected"):
        await prepare(settings(LEARNLOOP_MODEL_URI=f"file://{file}", LEARNLOOP_MODEL_SHA256="0" * 64), env)
