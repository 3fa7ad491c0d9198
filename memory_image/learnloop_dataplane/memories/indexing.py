"""Keeps index rows current: stems of another analyzer are cut again, and vectors follow the embedder.

An index row has room for the vectors of two embedders. One that replaces another is staged: its vectors are made in the
second place while the first go on answering. A namespace switches when all are there and its agents' own questions find
as much with them as before. Naming the old embedder again switches back immediately: its vectors were kept.
"""

import logging
import time
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pgvector import HalfVector

from learnloop_dataplane import errors, stems
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.recall.questions import index

log = logging.getLogger(__name__)
BATCH = 500
BATCHES = 20  # of one step
K = 10
FEWEST_QUESTIONS, MOST_QUESTIONS = 20, 500
WORSE = 0.02  # of recall@10 that a new embedder may lose on the agents' own questions
AGAIN, LATEST = 3600.0, 86_400.0  # seconds until one that lost more is compared again: twice as many each time

_OTHER_STEMS = """
SELECT v.agent_id, v.memory_id, m.content, m.speaker, m.session_id FROM memory_index v
JOIN agent_memories m ON m.namespace = v.namespace AND m.id = v.memory_id
WHERE v.namespace = $1 AND v.analyzer <> $2 ORDER BY v.agent_id, v.memory_id LIMIT $3 FOR UPDATE OF v SKIP LOCKED
"""
_FORGET_WORDS = "SELECT forget_words($1, $2, $3::uuid[])"
_RESTEM = """
UPDATE memory_index v SET analyzer = $2, terms = t.terms, named = t.named, about = t.about,
    listed = false
FROM unnest($3::text[], $4::uuid[], $5::bytea[], $6::smallint[], $7::bytea[]) AS t(agent, id, terms, named, about)
WHERE v.namespace = $1 AND v.agent_id = t.agent AND v.memory_id = t.id
"""
_IN_USE = """
SELECT embedder, refused, before, EXISTS(SELECT 1 FROM memory_index v WHERE v.namespace = $1) AS needed
FROM memory_embedders WHERE namespace = $1
"""
_USE = """
INSERT INTO memory_embedders (namespace, embedder) VALUES ($1, $2)
ON CONFLICT (namespace) DO UPDATE SET before = memory_embedders.embedder, embedder = excluded.embedder, refused = NULL
WHERE memory_embedders.embedder <> excluded.embedder
"""
_REFUSE = "UPDATE memory_embedders SET refused = $2 WHERE namespace = $1"
_WITHOUT = """
SELECT v.agent_id, v.memory_id, m.text FROM memory_index v
JOIN agent_memories m ON m.namespace = v.namespace AND m.id = v.memory_id
WHERE v.namespace = $1 AND v.embedder IS DISTINCT FROM $2 AND v.next_embedder IS DISTINCT FROM $2
ORDER BY random() LIMIT $3
"""
# Into the place that the embedder to keep ($3) does not have. Rows are locked in one order, so that
# two replicas wait for one another and never in a circle; and once each, however the update is joined to them.
_EMBED = """
WITH t AS MATERIALIZED (SELECT t.*, m.embedder IS DISTINCT FROM $3 OR m.embedder IS NULL AS first
    FROM unnest($4::text[], $5::uuid[], $6::halfvec[]) AS t(agent, id, embedding)
    JOIN memory_index m ON m.namespace = $1 AND m.agent_id = t.agent AND m.memory_id = t.id
    ORDER BY m.agent_id, m.memory_id FOR UPDATE OF m)
UPDATE memory_index v SET
    embedder = CASE WHEN first THEN $2 ELSE v.embedder END,
    embedding = CASE WHEN first THEN t.embedding ELSE v.embedding END,
    next_embedder = CASE WHEN first THEN v.next_embedder ELSE $2 END,
    next_embedding = CASE WHEN first THEN v.next_embedding ELSE t.embedding END,
    copied = NULL
FROM t WHERE v.namespace = $1 AND v.agent_id = t.agent AND v.memory_id = t.id
"""
# What was asked within a session, and what was said next; with both embedders' vectors.
_QUESTIONS = r"""
SELECT q.agent_id, array_agg(q.place) FILTER (WHERE q.asks) AS queries,
    array_agg(CASE WHEN q.embedder = $2 THEN q.embedding ELSE q.next_embedding END ORDER BY q.place) AS old,
    array_agg(CASE WHEN q.embedder = $3 THEN q.embedding ELSE q.next_embedding END ORDER BY q.place) AS new
FROM (SELECT v.*, m.text ~ '[?？؟]\s*$' AND lead(v.session) OVER spoken = v.session AND v.session <> 0 AS asks,
        row_number() OVER spoken - 1 AS place
    FROM memory_index v JOIN agent_memories m ON m.namespace = v.namespace AND m.id = v.memory_id
    WHERE v.namespace = $1 AND v.agent_id = $4 AND v.visible_to > now()
        AND $2 IN (v.embedder, v.next_embedder) AND $3 IN (v.embedder, v.next_embedder)
    WINDOW spoken AS (ORDER BY v.session, v.position, v.spoken_at, v.memory_id) LIMIT 5000) q
GROUP BY q.agent_id HAVING count(*) FILTER (WHERE q.asks) > 0
"""
_AGENTS = "SELECT agent_id FROM memory_index WHERE namespace = $1 GROUP BY agent_id ORDER BY count(*) DESC LIMIT 5"


class Indexing:
    """Steps of one namespace each; every one may be repeated.

    Args:
        embedder: that `LEARNLOOP_EMBEDDER` names; None: words alone.
        before: the one that `LEARNLOOP_EMBEDDER_BEFORE` names, which answers until the other's vectors are there.

    Attributes:
        refusals: why a namespace keeps the embedder before, by namespace.
    """

    def __init__(
        self,
        db: Database,
        analyzer: stems.Analyzer,
        embedder: Embedder | None,
        before: Embedder | None = None,
    ) -> None:
        self._db = db
        self._analyzer = analyzer
        self._embedder = embedder
        self._before = before
        self.refusals: dict[str, str] = {}
        self._in_use: dict[str, str | None] = {}
        self._current_stems: set[str] = set()
        self._rests: dict[str, tuple[float, float]] = {}  # until when a refused embedder rests, and for how long

    async def embedder(self, namespace: str) -> Embedder | None:
        """The embedder whose vectors answer in this namespace; None: words alone.

        Raises:
            Unavailable: PostgreSQL does not answer, or the embedder in use is not configured.
        """
        if self._embedder is None:
            return None
        if namespace not in self._in_use:
            async with self._db.tenant(namespace) as connection:
                self._in_use[namespace] = await connection.fetchval(_IN_USE, namespace)
        name = self._in_use[namespace]
        if name is None or name == self._embedder.name:
            return self._embedder
        if self._before is None or self._before.name != name:
            raise errors.Unavailable(f"embedder {name}, whose vectors are in use; name it in LEARNLOOP_EMBEDDER_BEFORE")
        return self._before

    async def restem(self, namespace: str) -> int:
        """Cuts up to twenty batches of memories again that another analyzer cut; returns how many there were."""
        done = 0
        while namespace not in self._current_stems and done < BATCHES * BATCH:
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_OTHER_STEMS, namespace, self._analyzer.name, BATCH)
                agents, ids = [row["agent_id"] for row in rows], [row["memory_id"] for row in rows]
                for agent in sorted(set(agents)):
                    own = [row["memory_id"] for row in rows if row["agent_id"] == agent]
                    await connection.execute(_FORGET_WORDS, namespace, agent, own)
                given = [(orjson.loads(row["content"]), row["speaker"], row["session_id"]) for row in rows]
                cut = [index(*each, self._analyzer) for each in given]
                columns = [[getattr(each, name) for each in cut] for name in ("terms", "named", "about")]
                await connection.execute(_RESTEM, namespace, self._analyzer.name, agents, ids, *columns)
            done += len(rows)
            if not rows:
                self._current_stems.add(namespace)
        return done

    async def embed(self, namespace: str) -> int:
        """Makes up to twenty batches of vectors, and switches to the embedder when all are there; returns how many.

        Raises:
            Unavailable: PostgreSQL or the embedder does not answer; the rest waits.
        """
        if self._embedder is None:
            return 0
        async with self._db.tenant(namespace) as connection:
            row = await connection.fetchrow(_IN_USE, namespace)
        in_use = row["embedder"] if row else None
        self._in_use[namespace] = in_use
        target, before = self._embedder.name, 0
        if in_use == target:
            self.refusals.pop(namespace, None)
        failure: errors.Unavailable | None = None
        if self._before is not None and self._before.name == in_use:  # its vectors answer: they come first
            try:
                before = await self._fill(namespace, self._before, target)
            except errors.Unavailable as error:  # keeps the other from nothing
                failure = error
        count = await self._fill(namespace, self._embedder, in_use)
        rests = row and row["refused"] == target and time.monotonic() < self._rests.get(namespace, (0.0, 0.0))[0]
        rests = rests and row["needed"]  # after an erasure nothing is left to compare
        if count < BATCHES * BATCH and in_use != target and not rests:
            # The one before comes back whatever it finds: it answered here. So does any where the one in use cannot.
            answers = self._before is not None and self._before.name == in_use
            await self._switch(namespace, in_use if answers and row["before"] != target else None)
        if failure is not None and self._in_use[namespace] == in_use:
            raise failure
        return count + before

    async def _fill(self, namespace: str, embedder: Embedder, keep: str | None) -> int:
        """Puts vectors next to those of the embedder to keep, and over others.

        No connection waits for the embedder. Rows come by chance: replicas seldom take the same ones, and those that
        the embedder takes another time keep no others waiting.
        """
        done = 0
        while done < BATCHES * BATCH:
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_WITHOUT, namespace, embedder.name, BATCH)
            if rows:
                pairs = zip(rows, await embedder.embed([row["text"] for row in rows]), strict=True)
                filled = [(row["agent_id"], row["memory_id"], HalfVector(v)) for row, v in pairs if v is not None]
                async with self._db.tenant(namespace) as connection:
                    columns = map(list, zip(*filled, strict=True))
                    await connection.execute(_EMBED, namespace, embedder.name, keep, *columns)
                if len(filled) < len(rows):
                    raise errors.Unavailable(f"the embedder, for {len(rows) - len(filled)} texts")
            done += len(rows)
            if len(rows) < BATCH:
                break
        return done

    async def _switch(self, namespace: str, in_use: str | None) -> None:
        assert self._embedder is not None
        target = self._embedder.name
        async with self._db.tenant(namespace) as connection:
            if in_use is not None:
                before, after, questions = await self._compared(connection, namespace, in_use, target)
                if questions >= FEWEST_QUESTIONS and after < before - WORSE:
                    await connection.execute(_REFUSE, namespace, target)
                    rest = min(2 * self._rests.get(namespace, (0.0, AGAIN / 2))[1], LATEST)
                    self._rests[namespace] = time.monotonic() + rest, rest
                    self.refusals[namespace] = (
                        f"{namespace} keeps embedder {in_use}: of {questions} own questions {target} finds {after:.3f} "
                        f"and {before:.3f} are found now; they are compared again after {rest:.0f} s; name {in_use} in "
                        "LEARNLOOP_EMBEDDER, or another one, to end this"
                    )
                    log.warning("%s", self.refusals[namespace])
                    return
                log.info("%s switches from embedder %s to %s", namespace, in_use, target)
            await connection.execute(_USE, namespace, target)
        self._in_use[namespace] = target

    async def _compared(self, connection: Any, namespace: str, old: str, new: str) -> tuple[float, float, int]:
        """Recall@10 of replies by the question before them, with the old vectors and the new; of how many questions."""
        hits = np.zeros(2)
        questions = 0
        for agent in await connection.fetch(_AGENTS, namespace):
            row = await connection.fetchrow(_QUESTIONS, namespace, old, new, agent["agent_id"])
            if row is None:
                continue
            # Of an agent with more memories the last one here has lost its reply.
            places = np.array([place for place in row["queries"] if place < len(row["new"]) - 1][:MOST_QUESTIONS], int)
            questions += len(places)
            hits += [_hits(row[name], places) for name in ("old", "new")]
        before, after = hits / max(questions, 1)
        return float(before), float(after), questions


def _hits(given: Any, places: NDArray[np.intp]) -> int:
    """How many of the questions have their reply, the next row, among the ten nearest others."""
    vectors = np.array([vector.to_numpy() for vector in given], np.float32)
    cosines = vectors[places] @ vectors.T
    cosines[np.arange(len(places)), places] = -np.inf
    replies = cosines[np.arange(len(places)), places + 1]
    return int(((cosines > replies[:, None]).sum(axis=1) < K).sum())
