"""Every family of causal language models that transformers names: probabilities of its own forward, or a refusal."""

import inspect

import numpy as np
import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as FAMILIES

from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, uniforms
from learnloop_trainer.language.base_model import Base, folder_digest
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import Episode, make, rows_of
from learnloop_trainer.language.sampler import Limits, Sampler, unfaithful

WORDS = 64
SIZES = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size", "emb_dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "d_ff"), 48),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "vocab_size", "vocab_size_per_layer_input"), WORDS),
    **dict.fromkeys(("head_dim", "rotary_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "mamba_expand", "eos_token_id"), 2),
    **dict.fromkeys(("encoder_layers", "n_group", "topk_group", "bos_token_id", "is_decoder"), 1),
    **{"state_size": 8, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_n_heads": 4, "mamba_d_head": 16},
    **{"pad_token_id": 0, "initializer_range": 0.3, "is_decoder": True},
}
"""Of the smallest model with every part; weights are wide, so that a wrong probability shows."""
HYBRID = ["linear_attention", "full_attention"]
OWN = {
    "bailing_hybrid": {"layer_types": HYBRID},
    "bamba": {"attn_layer_indices": [1]},
    "cohere": {"logit_scale": 0.25},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dots1": {"n_shared_experts": 1},
    "dots3_note_text": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma2": {"final_logit_softcapping": 1.5},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma4_text": {
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention"],
        "global_head_dim": 8,
        "final_logit_softcapping": 1.5,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granite": {"logits_scaling": 8.0},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {
        **dict.fromkeys(("attn_layer_period", "expert_layer_period"), 2),
        **dict.fromkeys(("attn_layer_offset", "expert_layer_offset"), 1),
    },
    "kimi_linear": {"layer_types": HYBRID},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "qwen3_5_moe_text": {"layer_types": HYBRID},
    "qwen3_5_text": {"layer_types": HYBRID},
    "qwen3_next": {"layer_types": HYBRID},
    "reformer": {
        "attn_layers": ["local"] * 2,
        "axial_pos_embds": False,
        "attention_head_size": 8,
        "feed_forward_size": 48,
    },
    "roc_bert": {
        **dict.fromkeys(("pronunciation_vocab_size", "shape_vocab_size"), WORDS),
        **dict.fromkeys(("pronunciation_embed_dim", "shape_embed_dim"), 8),
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "xlstm": {"num_heads": 2, "num_blocks": 2, "head_dim": 16},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"], "layer_types": ["mamba", "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}
REASONS = {
    "takes images or sound; its text model is a family of its own": (
        "emu3 dots3_note fuyu gemma3 gemma3n gemma4 gemma4_unified git got_ocr2 llama4 mllama moshi musicgen "
        "musicgen_melody moss_transcribe_diarize phi4_multimodal qwen3_5 qwen3_5_moe qwen4_exp"
    ),
    "cannot be built with fewer than 10 million weights": "blt",
    "its configuration refuses sizes this small": "cohere_compass_text zamba",
    "drafts for another model": "gemma4_assistant gemma4_unified_assistant",
}
UNBUILT = {name: reason for reason, names in REASONS.items() for name in names.split()}
WITHOUT_A_CACHE = (
    "cpmant falcon_mamba longcat_flash mamba mamba2 openai-gpt qwen4_exp_text recurrent_gemma reformer rwkv xlm xlnet "
    "xlstm"
)
PADDING_MOVES_POSITIONS = (
    "bart bigbird_pegasus blenderbot blenderbot-small camembert data2vec-text marian mbart mvp nemotron_h pegasus "
    "plbart prophetnet roberta roberta-prelayernorm trocr whisper xlm-roberta xlm-roberta-xl xmod zamba2"
)
REFUSED = {*WITHOUT_A_CACHE.split(), *PADDING_MOVES_POSITIONS.split()}


def built(name: str):
    """A small model of the family with random weights."""
    kind = CONFIG_MAPPING[name]
    fields = {*inspect.signature(kind.__init__).parameters, *kind.__dataclass_fields__, *kind.attribute_map}
    sizes = {field: size for field, size in SIZES.items() if field in fields}
    if "qk_rope_head_dim" in fields:
        sizes.pop("head_dim", None)
        sizes["num_key_value_heads"] = 4
    torch.manual_seed(0)
    return getattr(transformers, FAMILIES[name])(kind(**sizes | OWN.get(name, {}))).eval()


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - set(UNBUILT)))
def test_a_family_is_trained_and_sampled_with_the_probabilities_of_its_own_forward(name: str) -> None:
    model = built(name)
    why = unfaithful(model, WORDS)
    assert bool(why) == (name in REFUSED), why
    if why:
        return
    prompts, numbers = [[5, 9, 11, 4, 30], [7, 8, 60]], np.arange(2)
    with torch.no_grad():
        turns = Sampler(model)(
            prompts,
            lambda place: uniforms(Purpose.ACTION, 0, place, numbers),
            Limits(1.0, set(range(0, WORDS, 5)), 6, WORDS),
        )
        drawn = [turn for turn in turns if turn is not None]
        batch = make([Episode(rows_of([turn])[0], 0.0, 0) for turn in drawn], range(2), torch.device("cpu"))
        trained = LanguageNetwork(model).score(batch).log_prob
        own = []
        for turn in drawn:
            ids = torch.tensor([[*turn.prompt_ids, *turn.sampled_ids]])
            spread = torch.log_softmax(model(input_ids=ids).logits[0].float(), dim=1)
            own += [spread[at - 1, ids[0, at]] for at in range(len(turn.prompt_ids), ids.shape[1])]
    assert torch.allclose(trained, torch.stack(own), atol=1e-3)
    assert torch.allclose(batch.behaviour, torch.stack(own), atol=1e-3)


def test_every_family_that_is_left_out_has_a_reason() -> None:
    assert set(UNBUILT) <= set(FAMILIES)
    assert set(FAMILIES) > REFUSED
    assert all(UNBUILT.values())


def test_a_base_model_whose_probabilities_depend_on_how_it_is_called_is_refused(tmp_path) -> None:
    built("roberta").save_pretrained(tmp_path)
    base = Base(tmp_path, folder_digest(tmp_path))
    with pytest.raises(
        ConfigError, match=r"RobertaForCausalLM: it gives a token another probability.*use another base"
    ):
        base.model(torch.device("cpu"))
