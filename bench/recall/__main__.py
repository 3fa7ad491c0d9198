"""`make bench-recall DIR=…`: recall of the evidence in conversations, ours through the service's REST, beside others.

Every conversation becomes an agent and every turn one episodic memory; every question with evidence is asked once for
each arm. The unit is the turn: another turn of the session that holds the evidence is no hit (`session_r@10` counts
sessions). `default` is the service with its default settings; `lexical`, `context` and `vector` are its signals alone,
`minilm` and `minilm.vector` the same with that embedder (MODEL=DIRECTORY: with another one, MODEL=none: without);
`bm25` is a library's, `specified` the specification's merge. A table goes to stderr; the last line of stdout is one
JSON object. No target is set here: the set is somebody else's.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.recall import learned, peers
from bench.recall.asked import Weights, service
from bench.recall.conversations import Conversation, read
from bench.recall.measures import MEASURES, figures

ALONE: Mapping[str, Weights] = {name: {name: 1.0} for name in ("lexical", "context", "vector")}


def measure(conversations: Sequence[Conversation], model: Path | None, python: Path) -> dict[str, float]:
    """Every arm."""
    found: dict[str, float] = {}
    words = peers.bm25(python, conversations)
    with service(conversations) as asked:
        found |= figures("default", conversations, asked.ask())
        alone = {name: asked.ask(weights) for name, weights in ALONE.items()}
        for name, order in alone.items():
            found |= figures(name, conversations, order)
        found |= learned.measure(asked)
    found |= figures("bm25", conversations, words)
    found |= figures("specified", conversations, peers.specified(conversations, alone["vector"], words))
    if model:
        with service(conversations, EMBEDDER=f"onnx://{model}") as asked:
            found |= figures("minilm", conversations, asked.ask())
            found |= figures("minilm.vector", conversations, asked.ask(ALONE["vector"]))
            found |= {f"minilm.{name}": value for name, value in learned.measure(asked).items()}
    return found


def told(found: Mapping[str, Any]) -> str:
    """The table for people."""
    arms = [name.removesuffix(".r@10") for name in found if name.endswith(".r@10")]
    lines = [f"{'':16}" + "".join(f"{name:>24}" for name in MEASURES)]
    for arm in arms:
        lines.append(f"{arm:16}" + "".join(f"{_cell(found, f'{arm}.{name}'):>24}" for name in MEASURES))
    categories = sorted({name.rpartition("category_")[2] for name in found if "category_" in name})
    if categories:
        lines.append(f"{'r@10, category':16}" + "".join(f"{name:>10}" for name in categories))
    for arm in arms:
        shown = [found.get(f"{arm}.r@10.category_{name}") for name in categories]
        if None not in shown:
            lines.append(f"{arm:16}" + "".join(f"{value:>10.3f}" for value in shown))
    return "\n".join(lines)


def _cell(found: Mapping[str, Any], name: str) -> str:
    low, high = found.get(f"{name}.low"), found.get(f"{name}.high")
    return f"{found[name]:.3f}" + ("" if low is None else f" ({low:.3f}–{high:.3f})")


def main() -> None:
    """Measures, prints the table and the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("directory", type=Path, help="of conversations in LoCoMo's format, or one such file")
    parser.add_argument("--model", help="a directory with model.onnx and vocab.txt, or `none`; default: MiniLM-L6")
    arguments = parser.parse_args()
    conversations = read(arguments.directory)
    started = time.monotonic()
    python = peers.environment()
    with tempfile.TemporaryDirectory() as directory:
        if arguments.model == "none":
            model = None
        else:
            model = Path(arguments.model).resolve() if arguments.model else peers.model(python, Path(directory))
        found: dict[str, Any] = {
            "conversations": len(conversations),
            "turns": sum(len(conversation.turns) for conversation in conversations),
            "questions": sum(len(conversation.questions) for conversation in conversations),
        } | measure(conversations, model, python)
    print(told(found), file=sys.stderr, flush=True)
    print(json.dumps(found | {"seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main()
