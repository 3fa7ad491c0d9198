"""The example that makes a tiny language model, for tests and benches."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "tiny-language-model"))

from make_model import make, model, tokeniser, write_gguf

__all__ = ["make", "model", "tokeniser", "write_gguf"]
