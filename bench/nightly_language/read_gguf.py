"""`python -m bench.nightly_language.read_gguf FILE FOLDER`: a GGUF model as save_pretrained writes one, in float32.

A process of its own, for the package accelerate is on its path alone.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(file: Path, folder: Path) -> None:
    """See the module."""
    torch.set_num_threads(1)
    words = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    read: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # it is quantised no longer, and would not be written
    plain: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    words.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
