"""The folder of a chat model that has a tokeniser of bytes, a template with tools, and no weights."""

import hashlib
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n"
    "{%- for tool in tools %}{{ ' ' + tool.function.name }}{% endfor %}<|im_end|>\n{% endif -%}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
BEGIN, END = "<|im_start|>", "<|im_end|>"


def write_folder(folder: Path, template: str = TEMPLATE, context: int = 4096) -> str:
    """Write it; returns the digest of the template."""
    folder.mkdir(parents=True, exist_ok=True)
    words = {word: place for place, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokeniser = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokeniser.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokeniser.decoder = decoders.ByteLevel()
    tokeniser.add_special_tokens([AddedToken(BEGIN, special=True), AddedToken(END, special=True)])
    tokeniser.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": context}))
    (folder / "chat_template.jinja").write_text(template)
    return hashlib.sha256(template.encode()).hexdigest()
