"""`make bench-recall DIR=…`: recall of the evidence in conversations, through the service's REST, against others.

DIR holds conversations as LoCoMo, REALTALK or BEAM write them. Every conversation becomes an agent and every turn (of
BEAM: every message) one episodic memory; every question with evidence is asked once for each arm. The unit is the turn:
another turn of the session that holds the evidence is a miss (`session_r@10` counts sessions). `default` is the service
with its default settings, `large` how an agent is searched that has too many memories to rank them all. `minilm` is an
embedder (MODEL=onnx:///DIRECTORY: `given`, another one; MODEL=none: none).
`bm25` is a library's over plain words, `bm25.stemmed` the same over our stems without stop words, and `bm25.neighbours`
adds half of the score of each turn next to it. `….unseen` leaves out the conversations that constants were picked on.

A table goes to stderr; the last line of stdout is one JSON object. No target is set here: the set is somebody else's.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.recall import peers
from bench.recall.conversations import Conversation, read
from bench.recall.measures import MEASURES, figures
from bench.recall.service import gone, service
from learnloop_dataplane.stems import Analyzer

LARGE = {"EXACT_UP_TO": "1", "INDEX_CHECK_SECONDS": "0.5", "SWEEP_SECONDS": "0.5"}


def measure(conversations: Sequence[Conversation], embedders: Mapping[str, str], python: Path) -> dict[str, float]:
    """Every arm."""
    with service(conversations) as running:
        results = figures("default", conversations, running.ask()) | _of("default", running.costs())
        with running.started_with(**LARGE):
            gone(running.unlisted, "stems listed")
            results |= figures("large", conversations, running.ask())
    results |= figures("bm25", conversations, peers.bm25(python, conversations))
    terms = Analyzer().terms
    results |= figures("bm25.stemmed", conversations, peers.bm25(python, conversations, terms))
    results |= figures("bm25.neighbours", conversations, peers.bm25(python, conversations, terms, 0.5))
    for name, setting in embedders.items():
        with service(conversations, EMBEDDER=setting) as running:
            results |= figures(name, conversations, running.ask()) | _of(name, running.costs())
            files = Path(setting.partition("://")[2]).iterdir()
            results[f"{name}.disk_mib"] = round(sum(file.stat().st_size for file in files) / 2**20, 1)
    return results


def _of(arm: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{arm}.{name}": value for name, value in values.items()}


def table(results: Mapping[str, Any]) -> str:
    """The table for people."""
    arms = [name.removesuffix(".r@10") for name in results if name.endswith(".r@10")]
    columns = [*MEASURES, "r@10.unseen"]
    lines = [f"{'':24}" + "".join(f"{name:>22}" for name in columns)]
    for arm in arms:
        cells = (_cell(results, f"{arm}.{name}") for name in columns)
        lines.append(f"{arm:24}" + "".join(f"{cell:>22}" for cell in cells))
    categories = sorted({name.rpartition("category_")[2] for name in results if "category_" in name})
    if categories:
        lines.append(f"{'r@10, category':24}" + "".join(f"{name:>10}" for name in categories))
    for arm in arms:
        shown = [results.get(f"{arm}.r@10.category_{name}") for name in categories]
        if None not in shown:
            lines.append(f"{arm:24}" + "".join(f"{value:>10.3f}" for value in shown))
    costs = ("ms.p50", "ms.p99", "rss_mib", "disk_mib", "stored_per_s")
    lines.append(f"{'':24}" + "".join(f"{name:>14}" for name in costs))
    for arm in arms:
        if f"{arm}.ms.p50" in results:
            lines.append(f"{arm:24}" + "".join(f"{results.get(f'{arm}.{name}', 0):>14}" for name in costs))
    return "\n".join(lines)


def _cell(results: Mapping[str, Any], name: str) -> str:
    if name not in results:
        return ""
    low, high = results.get(f"{name}.low"), results.get(f"{name}.high")
    return f"{results[name]:.3f}" + ("" if low is None else f" ({low:.3f}–{high:.3f})")


def main() -> None:
    """Measures, prints the table and the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument(
        "directory", type=Path, help="of conversations as LoCoMo, REALTALK or BEAM write them, or one file"
    )
    parser.add_argument("--model", help="onnx:///directory or `none`")
    arguments = parser.parse_args()
    conversations = read(arguments.directory)
    started = time.monotonic()
    python = peers.environment()
    if arguments.model:
        embedders = {} if arguments.model == "none" else {"given": arguments.model}
    else:
        embedders = peers.embedders(python)
    results: dict[str, Any] = {
        "conversations": len(conversations),
        "turns": sum(len(conversation.turns) for conversation in conversations),
        "questions": sum(len(conversation.questions) for conversation in conversations),
    } | measure(conversations, embedders, python)
    print(table(results), file=sys.stderr, flush=True)
    print(json.dumps(results | {"seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main()
