"""`make nightly-language`: a model of 135 million parameters learns by RLOO to call a tool; the last line is JSON.

MODEL=: a folder or hf://owner/name; left out, SmolLM2-135M-Instruct out of a package. It first imitates demonstrations
of which half err. Then the program of the trainer's image runs a TrainingJob's order: RLOO with LoRA, held-out tasks
before and after, export, manifest. The adapter, for PEFT and for llama.cpp, is kept in dist/nightly-language. A real
llama.cpp serves it, and its log-probabilities are compared with the trainer's.

--minutes is processor time for learning. It is an upper bound of imitation, which gets a quarter, and an estimate for
RLOO, whose rounds are whole; judging and serving come on top. A GPU is used where there is one. Where the model
cannot be had, the line says `skipped` and why.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bench.arguments import parser
from bench.nightly_language.base import fetched
from bench.nightly_language.errors import NotHereError
from bench.nightly_language.imitation import imitate
from bench.nightly_language.learning import Asked, kept, learn, rounds_for
from bench.nightly_language.served import compared
from learnloop_environments.conversations.make import WORLDS
from learnloop_environments.conversations.tool_lookup import ToolLookup

SHARE = 0.25
"""Of the processor time, for imitation at most."""
UPDATES = 60
KEPT = Path("dist/nightly-language")


def main() -> int:
    """See the module; 1 where the server's log-probabilities are others than the trainer's."""
    known = parser(__doc__)
    known.add_argument(
        "model", nargs="?", default="", help="folder or hf://owner/name; left out: SmolLM2-135M-Instruct"
    )
    known.add_argument("--minutes", type=float, default=60.0, help="of the processor, for learning: 60 where left out")
    known.add_argument("--rounds", type=int, help="of RLOO; left out, as many as the minutes hold")
    known.add_argument("--updates", type=int, default=UPDATES, help=f"of imitation at most; left out: {UPDATES}")
    known.add_argument("--episodes", type=int, default=32, help="of a round: 32 where left out, a multiple of 8")
    known.add_argument("--held-out", type=int, default=64, help="tasks: 64 where left out")
    known.add_argument("--rate", type=float, default=5e-4, help="learning rate of RLOO: 0.0005 where left out")
    known.add_argument("--world", choices=WORLDS, default="ToolLookupEasy-v1")
    known.add_argument("--seed", type=int, default=0)
    known.add_argument("--server", nargs="+", help="command of a llama-server; left out, bench/llama_server finds one")
    asked = known.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nightly-language-") as root:
        try:
            name, source = fetched(asked.model, Path(root) / "source")
        except NotHereError as reason:
            print(json.dumps({"skipped": str(reason)}))
            return 0
        found: dict[str, Any] = {
            "model": name,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        }
        found |= night(Path(root), source, vars(asked))
    print(json.dumps(found | {"wall_seconds": round(time.monotonic() - began, 1)}))
    return 0 if found["server"].get("passed", True) else 1


def night(root: Path, source: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Imitation, RLOO and the server, in a folder of its own."""
    world = WORLDS[asked["world"]]()
    assert isinstance(world, ToolLookup)
    seconds = 60.0 * asked["minutes"]
    first = imitate(source, root / "base", world, asked["updates"], SHARE * seconds, asked["seed"])
    print(f"imitation: {first.updates} updates, {first.seconds:.0f} processor seconds", flush=True)
    rounds = asked["rounds"] or rounds_for(
        seconds - first.seconds, asked["episodes"], first.tokens, first.token_seconds
    )
    run = Asked(asked["world"], rounds, asked["episodes"], asked["held_out"], asked["rate"], asked["seed"])
    manifest, spent = learn(root / "base", run, root / "store")
    proof = manifest.language
    assert proof is not None  # of a language model
    adapter = kept(manifest, KEPT)
    return {
        "imitation": {"updates": first.updates, "cpu_seconds": round(first.seconds, 1)},
        "rloo": {"rounds": rounds, "episodes": manifest.step, "cpu_seconds": round(spent, 1)},
        "held_out": asked["held_out"],
        "sampled": [proof.baseline_success, proof.success],
        "greedy": [proof.baseline_greedy_success, proof.greedy_success],
        "difference": manifest.difference.model_dump() if manifest.difference else None,
        "curves": {name: round(value, 5) for name, value in proof.curves.items()},
        "adapter": sorted(path.name for path in adapter.iterdir()),
        "server": compared(root / "base", adapter, world, min(64, asked["held_out"]), asked["server"]),
    }


if __name__ == "__main__":
    sys.exit(main())
