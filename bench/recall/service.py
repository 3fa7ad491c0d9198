"""The service itself: every turn stored and every question asked over its REST, one agent for each conversation."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from bench.recall.conversations import Conversation
from testing.servers.data_plane_process import Product, postgres

STORE, RETRIEVE = "/api/v1/memory/store/batch", "/api/v1/memory/retrieve"
BATCH, K = 1000, 10
TRIES, PAUSE_SECONDS = 10, 1.0  # for an answer that is whole
STUCK_SECONDS = 600.0  # without any progress: a set of any size may take as long as it takes
TIMED = 300  # questions that are asked one at a time, for the time that each takes
_WITHOUT_VECTOR = "SELECT count(*) FROM memory_index WHERE embedder IS NULL"
_NOT_LISTED = "SELECT count(*) FROM memory_index WHERE NOT listed"


class Service:
    """A running service with these conversations in it."""

    def __init__(
        self, product: Product, dsn: str, conversations: Sequence[Conversation], *, embeds: bool = False
    ) -> None:
        self.product = product
        self.conversations = conversations
        self.turn_of: dict[str, str] = {}
        self._dsn = dsn
        started = time.monotonic()
        for conversation in conversations:
            self.store(conversation.name, conversation)
        if embeds:
            gone(self.without_vector, "vector")
        self.stored_per_second = len(self.turn_of) / (time.monotonic() - started)

    def store(self, agent: str, conversation: Conversation) -> dict[str, str]:
        """Stores every turn, in the order in which they were said; from the memories' ids to the turns'."""
        memories = [
            {
                "agent_id": agent,
                "memory_type": "episodic",
                "content": {"text": turn.text},
                "speaker": turn.speaker,
                "session_id": f"{conversation.name}-{turn.session}",
            }
            for turn in conversation.turns
        ]
        turns_of: dict[str, str] = {}
        for start in range(0, len(memories), BATCH):
            ids = self.product.post(STORE, {"memories": memories[start : start + BATCH]})["ids"]
            turns = conversation.turns[start : start + BATCH]
            turns_of |= {identity: turn.id for identity, turn in zip(ids, turns, strict=True)}
        self.turn_of |= turns_of
        return turns_of

    def without_vector(self) -> int:
        """How many memories have no vector yet."""
        return self._count(_WITHOUT_VECTOR)

    def unlisted(self) -> int:
        """How many memories' stems are not listed yet; an agent lists nothing below one memory."""
        return max(self._count(_NOT_LISTED) - len(self.conversations), 0)

    def _count(self, statement: str) -> int:
        with psycopg.connect(self._dsn, autocommit=True) as watcher:
            left: int = watcher.execute(statement).fetchone()[0]  # type: ignore[index]
        return left

    def retrieve(self, queries: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The answers to these queries.

        An answer without the embedder does not count as the embedder's: such a question is asked again.

        Raises:
            SystemExit: it stays so.
        """
        answers: list[Any] = [None] * len(queries)
        left = list(range(len(queries)))
        for _ in range(TRIES):
            for place in left:
                answers[place] = self.product.post(RETRIEVE, queries[place])
            left = [place for place in left if answers[place]["degraded"]]
            if not left:
                return answers
            time.sleep(PAUSE_SECONDS)
        raise SystemExit(
            f"{len(left)} of {len(queries)} questions are answered without {answers[left[0]]['degraded']}, "
            f"{TRIES} times: these figures are not this embedder's; give it more of the processor"
        )

    def ask(self, conversations: Sequence[Conversation] | None = None) -> dict[str, list[list[str]]]:
        """For each question of each (or of these) conversations the turns in the order of the answer.

        Raises:
            SystemExit: an answer was found without the embedder.
        """
        answers_of = {}
        for conversation in self.conversations if conversations is None else conversations:
            queries = [
                {"agent_id": conversation.name, "context": question.text, "k": K} for question in conversation.questions
            ]
            answers = self.retrieve(queries)
            orders = ([self._turn(conversation, hit) for hit in answer["memories"]] for answer in answers)
            answers_of[conversation.name] = list(orders)
        return answers_of

    def _turn(self, conversation: Conversation, hit: Mapping[str, Any]) -> str:
        """The turn; of another conversation, one by a name that no evidence has."""
        turn = self.turn_of[hit["id"]]
        return turn if hit["agent_id"] == conversation.name else f"{hit['agent_id']}/{turn}"

    def costs(self) -> dict[str, float]:
        """Milliseconds of a recall, one question at a time; the process's memory; the turns it took in a second."""
        questions = [(each.name, question.text) for each in self.conversations for question in each.questions]
        chosen = [questions[place] for place in np.linspace(0, len(questions) - 1, TIMED).astype(int)]
        took = []
        for agent, text in chosen:
            started = time.perf_counter()
            self.product.post(RETRIEVE, {"agent_id": agent, "context": text, "k": 10})
            took.append(1000 * (time.perf_counter() - started))
        return {
            "ms.p50": round(float(np.percentile(took, 50)), 2),
            "ms.p99": round(float(np.percentile(took, 99)), 2),
            "rss_mib": round(self.product.rss_mib(), 1),
            "stored_per_s": round(self.stored_per_second, 1),
        }

    @contextmanager
    def started_with(self, **settings: str) -> Iterator[None]:
        """The same memories, asked of a process with these settings besides."""
        self.product.stop()
        self.product.start(**settings)
        try:
            yield
        finally:
            self.product.stop()
            self.product.start()


def gone(left: Callable[[], int], what: str) -> None:
    """Returns when nothing is left.

    Raises:
        SystemExit: it does not get less.
    """
    least, since = left(), time.monotonic()
    while now := left():
        if now < least:
            least, since = now, time.monotonic()
        elif time.monotonic() - since > STUCK_SECONDS:
            raise SystemExit(f"{now} memories have no {what}, and it has been so for {STUCK_SECONDS:.0f} s")
        time.sleep(0.5)


@contextmanager
def service(conversations: Sequence[Conversation], **settings: str) -> Iterator[Service]:
    """One with a database of its own and these settings, after everything is stored and indexed."""
    with postgres() as server, tempfile.TemporaryDirectory() as directory:
        server.psql("CREATE DATABASE ours;")
        with Product(server.get_uri("ours"), Path(server.pgdata), Path(directory), **settings) as product:
            turns = sum(len(conversation.turns) for conversation in conversations)
            print(
                f"  storing {turns} turns, {settings.get('EMBEDDER', 'default settings')} …",
                file=sys.stderr,
                flush=True,
            )
            yield Service(product, server.get_uri("ours"), conversations, embeds="EMBEDDER" in settings)
