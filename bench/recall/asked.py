"""The service itself: every turn stored and every question asked over its REST, one agent for each conversation."""

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.recall.conversations import Conversation
from testing.servers.data_plane_process import Product, postgres

STORE, RETRIEVE = "/api/v1/memory/store/batch", "/api/v1/memory/retrieve"
BATCH, DEPTH, TOGETHER = 1000, 30, 50
Weights = Mapping[str, float] | None  # what the service is asked to rank by; None: as it does by itself


class Asked:
    """A running service with these conversations in it."""

    def __init__(self, product: Product, dsn: str, conversations: Sequence[Conversation]) -> None:
        self.product = product
        self.conversations = conversations
        self.turn_of: dict[str, str] = {}
        for conversation in conversations:
            self.store(conversation.name, conversation)
        with psycopg.connect(dsn, autocommit=True) as watcher:
            while watcher.execute("SELECT EXISTS(SELECT 1 FROM memory_pending)").fetchone() != (False,):
                time.sleep(0.05)

    def store(self, agent: str, conversation: Conversation) -> dict[str, str]:
        """Stores every turn, in the order in which they were said; from the memories' ids to the turns'."""
        memories = [
            {
                "agent_id": agent,
                "memory_type": "episodic",
                "content": {"text": turn.text},
                "session_id": f"{conversation.name}-{turn.session}",
            }
            for turn in conversation.turns
        ]
        found: dict[str, str] = {}
        for start in range(0, len(memories), BATCH):
            ids = self.product.post(STORE, {"memories": memories[start : start + BATCH]})["ids"]
            turns = conversation.turns[start : start + BATCH]
            found |= {identity: turn.id for identity, turn in zip(ids, turns, strict=True)}
        self.turn_of |= found
        return found

    def ask(
        self, weights: Weights = None, conversations: Sequence[Conversation] | None = None
    ) -> dict[str, list[list[str]]]:
        """For each question of each (or of these) conversations the turns in the order of the answer."""
        found = {}
        for conversation in self.conversations if conversations is None else conversations:
            queries = [
                {"agent_id": conversation.name, "context": question.text, "k": DEPTH}
                | ({"weights": dict(weights)} if weights else {})
                for question in conversation.questions
            ]
            answers: list[Any] = []
            for start in range(0, len(queries), TOGETHER):
                body = {"queries": queries[start : start + TOGETHER]}
                answers += self.product.post(f"{RETRIEVE}/batch", body)["answers"]
            found[conversation.name] = [[self.turn_of[hit["id"]] for hit in answer["memories"]] for answer in answers]
        return found


@contextmanager
def service(conversations: Sequence[Conversation], **settings: str) -> Iterator[Asked]:
    """One with a database of its own and these settings, after everything is stored and indexed."""
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE ours;")
        more = {"RECALL_WAIT_MS": "10000"} | settings
        with Product(server.get_uri("ours"), Path(server.pgdata), Path(directory), **more) as product:
            turns = sum(len(conversation.turns) for conversation in conversations)
            print(f"  storing {turns} turns, {more.get('EMBEDDER', 'default settings')} …", file=sys.stderr, flush=True)
            yield Asked(product, server.get_uri("ours"), conversations)
