"""`python make_model.py DIRECTORY`: a tiny chat model of a tiny world, from nothing.

For trials, tests and benches on a machine without a GPU and without downloads: a Llama of about 118,000 parameters, a
byte-pair tokeniser of a few hundred words, and a chat template with tool calls. It gets some supervised training, on
demonstrations of which most are wrong. The folder it writes is one that every tool for language models reads. With
`--gguf NAME` it has the model as GGUF, too, for llama.cpp. The last line printed is JSON: the folder's digest, which is
`base.sha256` of a language model, and what was made.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from learnloop_api.kinds.training.algorithms import hyperparameters
from learnloop_environments.conversations.tool_lookup import LEVELS, ToolLookup, corpus
from learnloop_trainer.distributed import Alone
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import Sft
from learnloop_trainer.language.base_model import folder_digest
from learnloop_trainer.language.chat_experience import Plan, Recorded, demonstrated
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import LanguageNetwork, Setting
from learnloop_trainer.language.rows import Episode

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n"
    "{%- for tool in tools %}{{ ' ' + tool.function.name }}{% endfor %}<|im_end|>\n{% endif -%}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
WIDTH, LAYERS, HEADS, INNER, WORDS, CONTEXT = 64, 2, 4, 160, 378, 256
UPDATES = 300
"""After 200 it solves one task in twenty, which is too little to learn from."""


def tokeniser(world: ToolLookup, seed: int) -> Any:
    """A byte-pair tokeniser trained on the world's own language."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus(world, seed, 200), trainer)
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[2], additional_special_tokens=[SPECIAL[1]]
    )
    made.chat_template = TEMPLATE
    return made


def model(words: int, seed: int, stop: int) -> Any:
    """A Llama with random weights of deviation 1 / sqrt(width): with the usual 0.02 so small a one never learns."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            initializer_range=1.0 / math.sqrt(WIDTH),
            eos_token_id=stop,
            pad_token_id=0,
            bos_token_id=None,
            use_cache=True,
        )
    )


def make(
    directory: Path, world: ToolLookup, *, seed: int = 0, updates: int = UPDATES, mistakes: float = 0.65
) -> tuple[Any, Any]:
    """Write the model to `directory`; returns model and tokeniser. `mistakes`: share of demonstrations that err."""
    words = tokeniser(world, seed)
    network = LanguageNetwork(model(len(words), seed, words.eos_token_id))
    chat = Chat(words, world.tools)

    def demonstrations() -> list[Episode]:
        return [
            Episode([demonstrated(chat, world.demonstration(seed + 1, number, mistakes))], 0.0, number)
            for number in range(min(4000, total))
        ]

    parameters = hyperparameters(
        "sft", weights="full", learning_rate=6e-3, batch_episodes=16, learning_rate_schedule="cosine", warmup=0.05
    )
    group = Alone()
    total = updates * parameters.batch_episodes
    setting = Setting(network, Recorded(demonstrations, Plan(1, 1), group), group, seed, total)
    learner = Sft(parameters, setting)
    while learner.step < total:
        learner.iterate()
    network.model.save_pretrained(directory)
    words.save_pretrained(directory)
    return network.model, words


Floats = NDArray[np.float32]


def turned(weight: Floats, heads: int) -> Floats:
    """Rows of a query or key in GGUF's order: within each head the two halves take turns."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def write_gguf(folder: Path, path: Path) -> None:
    """Write the model of `folder`, which has a byte-pair tokeniser and tied embeddings, to `path`."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    arrays = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, "llama")
    heads, layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
    kv = int(config.get("num_key_value_heads") or heads)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(layers)
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_rope_dimension_count(int(config["hidden_size"]) // heads)
    theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta", 10_000.0)
    writer.add_rope_freq_base(float(theta))
    _vocabulary(writer, folder, int(config["vocab_size"]), int(config["eos_token_id"]))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, array in sorted(arrays.items()):
        body = np.ascontiguousarray(array.astype(np.float32))
        if name.endswith("q_proj.weight"):
            body = turned(body, heads)
        elif name.endswith("k_proj.weight"):
            body = turned(body, kv)
        target = names.get_name(name, try_suffixes=(".weight",))
        assert target is not None, name
        writer.add_tensor(target, body)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(writer: Any, folder: Path, size: int, stop: int) -> None:
    import gguf

    document = json.loads((folder / "tokenizer.json").read_text())
    words = {place: word for word, place in document["model"]["vocab"].items()}
    special = {item["id"]: item["content"] for item in document.get("added_tokens", ())}
    words |= special
    tokens = [words.get(place, f"[unused{place}]") for place in range(size)]
    kinds = [gguf.TokenType.CONTROL if place in special else gguf.TokenType.NORMAL for place in range(size)]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(stop)
    writer.add_bos_token_id(stop)
    writer.add_add_bos_token(False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny chat model for the world ToolLookup-v1.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--mistakes", type=float, default=0.65)
    parser.add_argument("--level", choices=LEVELS, default=LEVELS[0])
    parser.add_argument("--gguf", metavar="NAME", help="of a file in the folder, with the model as llama.cpp reads it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    world = ToolLookup(given.level)
    made, words = make(given.directory, world, seed=given.seed, updates=given.updates, mistakes=given.mistakes)
    if given.gguf:
        write_gguf(given.directory, given.directory / given.gguf)
    count = int(np.sum([part.numel() for part in made.parameters()]))
    facts = {"directory": str(given.directory), "parameters": count, "words": len(words)}
    print(json.dumps(facts | {"sha256": folder_digest(given.directory)}))


if __name__ == "__main__":
    main()
