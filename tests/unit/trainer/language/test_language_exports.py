"""The stored form of a trained language model: read again it says the same, and other readers know its names."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from learnloop_common.acting.gguf_adapter import gguf_adapter
from learnloop_environments.errors import ConfigError
from learnloop_trainer.baseline_policy import loaded
from learnloop_trainer.export.language_model_files import BASE, CONFIG, Trained, exported, put_into, read
from learnloop_trainer.language import lora
from learnloop_trainer.language.base_model import Base, folder_digest
from learnloop_trainer.language.network import LanguageNetwork

FACTS = {BASE: "a" * 64}


def adapted(model, rank: int = 4, alpha: float = 8.0) -> LanguageNetwork:
    """An adapter with random numbers on both sides."""
    network = LanguageNetwork(model, lora.attach(model, lora.LAYERS, rank, alpha, 0))
    network.vector.copy_(torch.randn(len(network.vector), generator=torch.Generator().manual_seed(1)) * 0.1)
    return network


def logits(model):
    return model(input_ids=torch.arange(3, 40).unsqueeze(0)).logits.detach()


def test_an_adapter_that_was_stored_says_the_same_beside_a_fresh_base(tiny, words) -> None:
    from testing.language.tiny_model import model

    network = adapted(tiny)
    config = lora.configuration(lora.LAYERS, 4, 8.0, "file:///tiny")
    body = exported(network, FACTS, config)
    adapter = read(body)
    fresh = model(len(words), seed=3, stop=words.eos_token_id)
    before = logits(fresh)
    put_into(fresh, adapter, 8.0 / 4)
    assert torch.allclose(logits(fresh), logits(tiny), atol=1e-5)
    assert not torch.allclose(before, logits(tiny), atol=1e-2)
    assert json.loads(adapter.facts[CONFIG])["r"] == 4


def narrow(words, folder: Path) -> tuple[Base, LanguageNetwork, Trained]:
    """A base of bfloat16 and an adapter in float32 next to it, trained and as it was stored."""
    from testing.language.tiny_model import model

    model(len(words), 3, words.eos_token_id).save_pretrained(folder)
    words.save_pretrained(folder)
    base = Base(folder, folder_digest(folder))
    network = adapted(base.model(torch.device("cpu"), torch.bfloat16))
    network.bfloat16 = True
    return base, network, read(exported(network, FACTS, lora.configuration(lora.LAYERS, 4, 8.0, "file:///tiny")))


def test_an_adapter_of_a_bfloat16_run_says_after_its_export_what_it_said_before(words, tmp_path: Path) -> None:
    base, network, trained = narrow(words, tmp_path)
    again = loaded(base, trained, torch.device("cpu"), torch.bfloat16, "the exported file")
    assert torch.equal(logits(again), logits(network.model))


def test_a_bfloat16_run_samples_from_the_policy_that_it_learns(words, tmp_path: Path) -> None:
    _, network, _ = narrow(words, tmp_path)
    with torch.autocast("cpu", torch.bfloat16):
        learned = logits(network.model)
    with network.sampling() as speaker:
        assert torch.equal(logits(speaker), learned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_of_another_model_is_refused_in_either_precision(dtype, words, tmp_path):
    base, _, trained = narrow(words, tmp_path)
    strange = {name.replace("layers.1", "layers.7"): array for name, array in trained.arrays.items()}
    with pytest.raises(ConfigError, match=r"layers\.7.*is of another model"):
        loaded(base, Trained(strange, trained.facts), torch.device("cpu"), dtype, "the exported file")


def test_the_arrays_have_the_names_and_shapes_of_peft(tiny) -> None:
    arrays = read(exported(adapted(tiny), FACTS, "{}")).arrays
    first = "base_model.model.model.layers.0.self_attn.q_proj"
    assert arrays[f"{first}.lora_A.weight"].shape == (4, 64)
    assert arrays[f"{first}.lora_B.weight"].shape == (64, 4)
    assert len(arrays) == 2 * 2 * len(lora.LAYERS)


def test_whole_weights_that_were_stored_say_the_same(tiny, words) -> None:
    from testing.language.tiny_model import model

    network = LanguageNetwork(tiny)
    network.vector.add_(0.01)
    fresh = model(len(words), seed=4, stop=words.eos_token_id)
    put_into(fresh, read(exported(network, FACTS, None)))
    assert torch.equal(logits(fresh), logits(tiny))


def test_a_file_of_another_kind_is_refused(tiny, words) -> None:
    from learnloop_trainer.store.run_store import pack
    from testing.language.tiny_model import model

    with pytest.raises(ValueError, match="learnloop did not train this language model"):
        read(pack({"a": np.zeros(3, dtype=np.float32)}, {}))
    body = exported(adapted(tiny), FACTS, "{}")
    result = read(body)
    strange = {name.replace("layers.1", "layers.7"): array for name, array in result.arrays.items()}
    with pytest.raises(ValueError, match=r"layers\.7.*is of another model"):
        put_into(model(len(words), seed=3, stop=words.eos_token_id), type(result)(strange, result.facts), 1.0)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM"])
def test_the_gguf_adapter_has_llama_cpps_names_and_its_order_of_rows(architecture, tiny, tmp_path):
    network = adapted(tiny)
    arrays = lora.arrays(network.adapters)
    config = {"architectures": [architecture], "num_hidden_layers": 2, "num_attention_heads": 4}
    body = gguf_adapter(arrays, config, 8.0)
    (tmp_path / "a.gguf").write_bytes(body)
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    assert reader.fields["general.type"].contents() == "adapter"
    assert reader.fields["adapter.type"].contents() == "lora"
    assert reader.fields["adapter.lora.alpha"].contents() == 8.0
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(tensors) == len(arrays)
    own = arrays["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"]
    stored = tensors["blk.0.attn_q.weight.lora_b"]
    if architecture == "Qwen2ForCausalLM":
        assert np.array_equal(stored, own)
    else:  # within each head, rows of the first and the second half take turns
        for head in range(4):
            rows = own[16 * head : 16 * (head + 1)]
            assert np.array_equal(stored[16 * head : 16 * (head + 1)][0::2], rows[:8])
            assert np.array_equal(stored[16 * head : 16 * (head + 1)][1::2], rows[8:])
    down = arrays["base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"]
    assert np.array_equal(tensors["blk.1.ffn_down.weight.lora_a"], down)


def test_an_architecture_that_is_not_known_has_no_gguf(tiny) -> None:
    network = adapted(tiny)
    assert gguf_adapter(lora.arrays(network.adapters), {"architectures": ["Strange"]}, 8.0) is None


def test_a_folders_digest_is_that_of_sha256sum(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two words").write_text("2")
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "B.json").write_text("3")
    line = r"find . -type f | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert folder_digest(tmp_path) == done.stdout.split()[0]
