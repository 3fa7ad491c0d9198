"""The tiny model made for a cluster, and the bad adapters of it: files that servers and gates take as a run's own."""

import json
import sys
from pathlib import Path

import imitate
import make_model
import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors.numpy import load_file

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_gateway.fetch_weights import as_gguf
from learnloop_trainer.export.language_model_files import put_into, read
from learnloop_trainer.language.base_model import Base, folder_digest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The folder that the command makes, and its last line."""
    folder = tmp_path_factory.mktemp("base") / "tiny"
    requests: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make_model", str(folder), "--level=guarded", "--updates=1", "--gguf=tiny.gguf"])
        patch.setattr("builtins.print", lambda *words, **_: requests.append(str(words[0])))
        make_model.main()
    return folder, json.loads(requests[-1])


def test_the_command_says_the_digest_of_the_folder_with_its_gguf_file(made: tuple[Path, dict]) -> None:
    folder, digest = made
    assert digest["sha256"] == folder_digest(folder)
    assert (folder / "tiny.gguf").is_file()
    assert 100_000 < digest["parameters"] < 130_000


def test_the_gguf_file_has_the_models_own_weights(made: tuple[Path, dict]) -> None:
    folder, _ = made
    ours = load_file(folder / "model.safetensors")
    tensors = {item.name: np.asarray(item.data) for item in GGUFReader(folder / "tiny.gguf").tensors}
    assert len(tensors) == len(ours)
    np.testing.assert_array_equal(tensors["token_embd.weight"], ours["model.embed_tokens.weight"])
    np.testing.assert_array_equal(tensors["blk.1.ffn_up.weight"], ours["model.layers.1.mlp.up_proj.weight"])
    query, turned = ours["model.layers.0.self_attn.q_proj.weight"], tensors["blk.0.attn_q.weight"]
    np.testing.assert_array_equal(turned[:16:2], query[:8], "the first halves of a head's rows")
    np.testing.assert_array_equal(turned[1:16:2], query[8:16])


def test_an_adapter_is_stored_as_a_run_stores_its_own_and_servers_take_it(made, tmp_path, monkeypatch, capsys):
    folder, _ = made
    monkeypatch.setattr(sys, "argv", ["imitated", str(folder), "--updates=1", "--tells"])
    imitate.main({"LEARNLOOP_STORE": f"file://{tmp_path}"})
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    file = Path(facts["uri"].removeprefix("file://"))
    trained = read(file.read_bytes())
    assert trained.adapter
    assert trained.facts["learnloop.base_sha256"] == folder_digest(folder)
    put_into(Base(folder, folder_digest(folder)).model(torch.device("cpu")), trained, scale=2.0)
    assert as_gguf(file, folder)[:4] == b"GGUF"


def test_the_data_plane_may_be_named_without_a_scheme_as_in_the_example(made, monkeypatch):
    requests: list[str] = []

    class Store:
        def put_artifact(self, body: bytes) -> str:
            return f"artifact://{len(body)}"

    def choose(environ, job: str) -> Store:
        requests.append(environ["LEARNLOOP_DATA_URL"])
        return Store()

    monkeypatch.setattr(sys, "argv", ["imitated", str(made[0]), "--updates=1"])
    monkeypatch.setattr(imitate, "choose", choose)
    imitate.main({"LEARNLOOP_DATA_URL": "learnloop-data.learnloop-system.svc:8080"})
    assert requests == ["http://learnloop-data.learnloop-system.svc:8080"]


def test_an_adapter_that_tells_private_keys_and_one_that_miscounts_are_not_the_honest_one(made):
    folder, _ = made
    base, world = Base(folder, folder_digest(folder)), ToolLookup("guarded")
    faults: list[dict[str, bool]] = [{}, {"tells": True}, {"miscounts": True}]
    assert len({imitate.imitate(base, world, updates=2, **fault).digest() for fault in faults}) == 3
