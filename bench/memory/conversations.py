"""Recall of the evidence in a set of conversations: `python -m bench.memory.conversations FILE [--onnx DIRECTORY]`.

FILE is JSON as LoCoMo's: a list of conversations, each with `conversation` (`session_1`, `session_2`, … are lists of
turns with `speaker`, `dia_id` and `text`; `session_1_date_time` may say when) and `qa` (questions with `question`,
`evidence`, a list of turns' ids, and `category`). Every conversation becomes an agent, every turn one episodic memory,
stored through the service's HTTP; every question with evidence is asked there, and asked again by BM25 alone and by the
vectors alone. With --onnx all of it is done a second time with that embedder (a directory with model.onnx and
vocab.txt). The unit is the turn: another turn of the session that holds the evidence is no hit. The last line is one
JSON object; no target is set here, because the set is kept aside.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from testing.servers.data_plane_process import Product, postgres

STORE, RETRIEVE = "/api/v1/memory/store/batch", "/api/v1/memory/retrieve"
K, DEPTH, BATCH = 10, 100, 1000
# What the service is asked to rank by; None: as it does by itself.
ARMS: Mapping[str, dict[str, float] | None] = {"ours": None, "bm25": {"lexical": 1.0}, "vector": {"vector": 1.0}}
_SESSION = re.compile(r"session_(\d+)$")
_TURN = re.compile(r"D\d+:\d+")


@dataclass(frozen=True)
class Turn:
    """One utterance, by its conversation's own id."""

    id: str
    session: str
    text: str


@dataclass(frozen=True)
class Question:
    """What is asked, and the turns that answer it."""

    text: str
    evidence: frozenset[str]
    category: str


@dataclass(frozen=True)
class Conversation:
    """Its turns in the order in which they were said, and its questions that have evidence."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def read(path: Path) -> list[Conversation]:
    """The conversations of a file.

    Raises:
        SystemExit: says what is missing where.
    """
    try:
        items = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}; give a JSON file of conversations") from None
    items = items if isinstance(items, list) else [items]
    found = [_conversation(item, f"{path}[{number}]", number) for number, item in enumerate(items)]
    if not any(conversation.questions for conversation in found):
        raise SystemExit(f"{path}: no question's evidence names a turn; qa[].evidence must hold dia_id's")
    return found


def _conversation(item: Any, where: str, number: int) -> Conversation:
    if not isinstance(item, dict) or not isinstance(item.get("conversation"), dict):
        raise SystemExit(f"{where}: has no object `conversation`")
    spoken = item["conversation"]
    sessions = sorted((name for name in spoken if _SESSION.match(name)), key=lambda name: int(name.split("_")[1]))
    turns = [_turn(turn, name, f"{where}.{name}") for name in sessions for turn in spoken[name] or ()]
    known = {turn.id for turn in turns}
    questions = []
    for asked in item.get("qa", ()):
        # Some of LoCoMo's own evidence is written as "D8:6; D9:17", and some of it names no turn at all.
        evidence = frozenset(_TURN.findall(" ".join(map(str, asked.get("evidence") or ())))) & known
        if evidence:
            questions.append(Question(str(asked["question"]), evidence, str(asked.get("category", ""))))
    return Conversation(f"conversation-{number}", tuple(turns), tuple(questions))


def _turn(turn: Any, session: str, where: str) -> Turn:
    try:
        text = f"{turn['speaker']}: {turn['text']}"
        caption = turn.get("blip_caption")
        return Turn(str(turn["dia_id"]), session, f"{text} [shows {caption}]" if caption else text)
    except (KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{where}: a turn needs speaker, dia_id and text ({error} is missing)") from None


def store(product: Product, conversation: Conversation) -> dict[str, str]:
    """Stores every turn; from the memories' ids to the turns'."""
    found = {}
    for start in range(0, len(conversation.turns), BATCH):
        part = conversation.turns[start : start + BATCH]
        memories = [
            {
                "agent_id": conversation.name,
                "memory_type": "episodic",
                "content": {"text": turn.text},
                "session_id": turn.session,
            }
            for turn in part
        ]
        ids = product.post(STORE, {"memories": memories})["ids"]
        found |= {identity: turn.id for identity, turn in zip(ids, part, strict=True)}
    return found


def ranks(order: Sequence[str], evidence: frozenset[str]) -> dict[str, float]:
    """recall@10, precision@10, whether anything was hit, and the reciprocal rank of the first hit (0 below 100)."""
    hits = len(evidence.intersection(order[:K]))
    first = next((place for place, turn in enumerate(order, 1) if turn in evidence), None)
    return {
        "recall_at_10": hits / len(evidence),
        "precision_at_10": hits / K,
        "hit_at_10": float(hits > 0),
        "mrr": 1 / first if first else 0.0,
    }


def measure(product: Product, dsn: str, conversations: Sequence[Conversation]) -> dict[str, float]:
    """Every arm's means over all questions; `recall_at_10` of ours by category, too."""
    found: dict[str, list[float]] = defaultdict(list)
    for conversation in conversations:
        print(f"  {conversation.name}: {len(conversation.turns)} turns", file=sys.stderr, flush=True)
        turn_of = store(product, conversation)
        with psycopg.connect(dsn, autocommit=True) as watcher:
            while watcher.execute("SELECT EXISTS(SELECT 1 FROM memory_pending)").fetchone() != (False,):
                time.sleep(0.05)
        for question in conversation.questions:
            for arm, weights in ARMS.items():
                body = {"agent_id": conversation.name, "context": question.text, "k": DEPTH}
                hits = product.post(RETRIEVE, body | ({"weights": weights} if weights else {}))["memories"]
                scores = ranks([turn_of[hit["id"]] for hit in hits], question.evidence)
                for name, value in scores.items():
                    found[f"{arm}_{name}"].append(value)
                if arm == "ours" and question.category:
                    found[f"ours_recall_at_10_category_{question.category}"].append(scores["recall_at_10"])
    return {name: round(float(np.mean(values)), 4) for name, values in found.items()}


def run(conversations: Sequence[Conversation], **settings: str) -> dict[str, float]:
    """The same with a service and a database of its own."""
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE ours;")
        more = {"RECALL_WAIT_MS": "10000"} | settings
        with Product(server.get_uri("ours"), Path(server.pgdata), Path(directory), **more) as product:
            return measure(product, server.get_uri("ours"), conversations)


def main() -> None:
    """Measures, and prints the object."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory.conversations", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--onnx", type=Path, help="a directory with model.onnx and vocab.txt")
    arguments = parser.parse_args()
    conversations = read(arguments.file)
    figures: dict[str, Any] = {
        "conversations": len(conversations),
        "turns": sum(len(conversation.turns) for conversation in conversations),
        "questions": sum(len(conversation.questions) for conversation in conversations),
    }
    figures |= {f"hashing_{name}": value for name, value in run(conversations).items()}
    if arguments.onnx:
        embedder = f"onnx://{arguments.onnx.resolve()}"
        figures |= {f"onnx_{name}": value for name, value in run(conversations, EMBEDDER=embedder).items()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
