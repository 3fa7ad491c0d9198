"""Reads from PostgreSQL what a recall ranks: all memories of an agent, or of a large one those worth ranking.

A large agent's stems are listed in `memory_words`. Of its memories those are read that have the rarest stems of the
question, those next to them, the nearest by vector, and all that are not listed yet.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.memory_tables import STANDING
from learnloop_dataplane.recall import memory_types, ranking
from learnloop_dataplane.recall.ranking import Memories, Population, Question, standing_kinds
from learnloop_dataplane.vectors.vector_store import Near, VectorStore

ALL, STEMS = -1, -2  # words of `memory_word_counts` that stand for the number of memories, and of their stems
MOST_POSTINGS = 20_000  # entries of `memory_words` that one question looks at
BY_WORDS, AROUND, NEAREST = 400, 150, 200
ALIKE, OF_LENGTH = 1000, 10  # memories of one worth that are looked at: the shortest, and some of each length
BATCH = 2000  # memories that are listed in one transaction
AFTER = 500  # memories of a listed agent that may wait to be listed
FEW = 2000  # memories that are compared and ranked in the event loop; more, in a thread
MOST_TOGETHER = 20_000  # memories of several agents that are ranked without a choice among them
_BIG = ["sessions", "same", "owners", "spoken_at", "speakers"]
_FACTS = np.dtype(  # as `memory_index.packed` has them, and more
    [(name, ">i8") for name in _BIG]
    + [("kinds", ">i2"), ("named", ">i2"), ("roots", ">i2"), ("persons", "?"), ("wanted", "?")]
    + [("outcomes", ">f4"), ("cosines", ">f4")]
)

# Naming the namespace inside the statement saves the two round trips of a transaction. The LATERAL part depends on the
# row that set_config returns, so it cannot run before; if it did, row-level security would show it nothing.
SCOPE = "FROM set_config('app.namespace', $1, true) AS s(namespace)"
_VISIBLE = "v.visible_from <= coalesce($6, now()) AND v.visible_to > coalesce($6, now())"
# $5 and $6 are the embedder and the question's vector, or NULL.
_READ = """
SELECT x.*, l.large {scope}, LATERAL (SELECT EXISTS(SELECT 1 FROM memory_word_counts c
    WHERE c.namespace = s.namespace AND c.agent_id = ANY($2::text[]) AND c.word = -1) AS large) l,
LATERAL (SELECT count(*)::int AS n,
    string_agg(uuid_send(v.memory_id), '') AS ids,
    string_agg(v.terms, '') AS terms,
    string_agg(int4send(length(v.terms)), '') AS lengths,
    string_agg(CASE WHEN v.kind > 0 THEN v.about END, '') AS about,
    string_agg(int8send(v.thread) || v.packed || boolsend(v.memory_type = ANY($3::smallint[])) || float4send(v.outcome)
        || CASE $5 WHEN v.embedder THEN float4send((-(v.embedding <#> $6))::real)
            WHEN v.next_embedder THEN float4send((-(v.next_embedding <#> $6))::real)
            ELSE '\\x7fc00000'::bytea END, '') AS facts
FROM (SELECT m.*, CASE WHEN m.session = 0 OR cardinality($2::text[]) = 1 THEN m.session
        ELSE m.session # hashtextextended(m.agent_id, 0) END AS thread
    FROM memory_index m
    WHERE m.namespace = s.namespace AND m.agent_id = ANY($2::text[])
        AND (m.memory_type = ANY($3::smallint[]) OR m.kind > 0)
        AND m.visible_from <= coalesce($4, now()) AND m.visible_to > coalesce($4, now()) AND {which}
    ORDER BY m.agent_id, m.session, m.position, m.spoken_at, m.memory_id) v) x
"""
_EVERYTHING = _READ.format(scope=SCOPE, which="NOT m.listed AND NOT l.large")
_NAMED = _READ.format(scope=SCOPE, which="m.memory_id = ANY($7::uuid[])")
_COUNTS = f"""
SELECT c.word, c.n {SCOPE}, LATERAL (SELECT word, sum(memories)::float8 AS n FROM memory_word_counts
    WHERE namespace = s.namespace AND agent_id = ANY($2::text[]) AND word = ANY($3::int[]) GROUP BY word) c
"""
_FIT = f"""CASE WHEN v.speaker = ANY($7::bigint[]) OR ($8 AND NOT v.person) THEN {ranking.SPEAKER} ELSE 1 END
    * CASE WHEN t.dated THEN {ranking.AMOUNT} ELSE 1 END * CASE WHEN v.kind IN (1, 2) THEN {ranking.KIND} ELSE 1 END
    / (1 + {ranking.K1} * (1 - {ranking.B} + {ranking.B} * length(v.terms) / (4 * $9::float8)))
    / sqrt(1 + length(v.terms) / (4 * {ranking.LONG}))"""
# What the question may not see takes no place, nor do copies, of one worth: the best are looked at until they suffice,
# by speaker, amount, kind and length as in the ranking, then by age. A look takes 8 µs, so of a worth that very many
# have only the shortest and a few of each length are looked at; all, if the question has a time or types of its own.
_CHOSEN = f"""
WITH top AS MATERIALIZED (
    SELECT x.* {SCOPE}, LATERAL (
        SELECT * FROM (
            SELECT DISTINCT ON (t.rank, v.fit, v.same) t.rank, v.* FROM (
                SELECT *, row_number() OVER (PARTITION BY rank, dated ORDER BY stems, memory_id DESC) AS place,
                    row_number() OVER (PARTITION BY rank, dated, stems ORDER BY memory_id DESC) AS of_length FROM (
                    SELECT w.memory_id, w.stems, round(-1e6 * sum(q.rarity)) AS rank, bool_or(q.rarity = 0) AS dated
                    FROM unnest($3::int[], $4::float8[]) AS q(word, rarity) JOIN memory_words w
                        ON w.namespace = s.namespace AND w.agent_id = ANY($2::text[]) AND w.word = q.word
                    GROUP BY w.memory_id, w.stems HAVING sum(q.rarity) > 0) g) t,
            LATERAL (SELECT v.memory_id, v.agent_id, v.session, v.position, v.spoken_at, v.same, {_FIT} AS fit
                FROM memory_index v WHERE v.namespace = s.namespace AND v.agent_id = ANY($2::text[])
                AND v.memory_id = t.memory_id AND (t.place <= $10::int OR t.of_length <= {OF_LENGTH})
                AND v.memory_type = ANY($5::smallint[]) AND {_VISIBLE} OFFSET 0) v
            ORDER BY t.rank, v.fit DESC, v.same, v.spoken_at DESC) y
        ORDER BY rank, fit DESC, spoken_at DESC LIMIT {BY_WORDS}) x
), best AS MATERIALIZED (
    SELECT * FROM (SELECT * FROM top ORDER BY rank, fit DESC, spoken_at DESC LIMIT {AROUND}) t WHERE session <> 0
)
SELECT memory_id FROM top
UNION SELECT n.memory_id FROM best b, LATERAL (
    (SELECT v.memory_id FROM memory_index v WHERE v.namespace = $1 AND v.agent_id = b.agent_id
        AND v.session = b.session AND (v.position, v.spoken_at, v.memory_id) > (b.position, b.spoken_at, b.memory_id)
        AND v.memory_type = ANY($5::smallint[]) AND {_VISIBLE}
        ORDER BY v.position, v.spoken_at, v.memory_id LIMIT 2)
    UNION ALL
    (SELECT v.memory_id FROM memory_index v WHERE v.namespace = $1 AND v.agent_id = b.agent_id
        AND v.session = b.session AND (v.position, v.spoken_at, v.memory_id) < (b.position, b.spoken_at, b.memory_id)
        AND v.memory_type = ANY($5::smallint[]) AND {_VISIBLE}
        ORDER BY v.position DESC, v.spoken_at DESC, v.memory_id DESC LIMIT 2)) n
UNION SELECT v.memory_id FROM memory_index v
    WHERE v.namespace = $1 AND v.agent_id = ANY($2::text[]) AND NOT v.listed
UNION (SELECT v.memory_id FROM memory_index v WHERE v.namespace = $1 AND v.agent_id = ANY($2::text[])
    AND v.kind >= {STANDING} AND {_VISIBLE}
    ORDER BY v.spoken_at DESC LIMIT {ranking.MOST_STATED})
"""
_SIZES = f"""
SELECT x.* {SCOPE}, LATERAL (SELECT agent_id, count(*)::int AS n FROM memory_index
    WHERE namespace = s.namespace AND agent_id = ANY($2::text[]) GROUP BY agent_id) x
"""
_WAITING = """
SELECT v.agent_id FROM memory_index v WHERE v.namespace = $1 AND NOT v.listed GROUP BY v.agent_id
HAVING count(*) > CASE WHEN EXISTS(SELECT 1 FROM memory_word_counts c WHERE c.namespace = $1
    AND c.agent_id = v.agent_id AND c.word = -1) THEN least($2::int, $3::int) ELSE $2::int END ORDER BY v.agent_id
"""
_LIST = f"""
WITH page AS MATERIALIZED (
    SELECT memory_id, terms FROM memory_index WHERE namespace = $1 AND agent_id = $2 AND NOT listed
    ORDER BY memory_id LIMIT {BATCH} FOR UPDATE SKIP LOCKED
), stems AS MATERIALIZED (
    SELECT p.memory_id, get_byte(p.terms, 4 * i + 1) | (get_byte(p.terms, 4 * i + 2) << 8)
        | (get_byte(p.terms, 4 * i + 3) << 16) AS word, get_byte(p.terms, 4 * i) AS times, length(p.terms) / 4 AS many
    FROM page p, generate_series(0, length(p.terms) / 4 - 1) AS i
), written AS (
    INSERT INTO memory_words (namespace, agent_id, word, stems, memory_id)
    SELECT DISTINCT $1, $2, word, many, memory_id FROM stems ON CONFLICT DO NOTHING
), counted AS (
    INSERT INTO memory_word_counts AS c (namespace, agent_id, word, memories)
    SELECT $1, $2, word, n FROM (
        SELECT word, count(DISTINCT memory_id) AS n FROM stems GROUP BY word
        UNION ALL SELECT {ALL}, count(*) FROM page UNION ALL SELECT {STEMS}, coalesce(sum(times), 0) FROM stems) f
    ORDER BY word
    ON CONFLICT (namespace, agent_id, word) DO UPDATE SET memories = c.memories + excluded.memories
), marked AS (
    UPDATE memory_index v SET listed = true WHERE v.namespace = $1 AND v.agent_id = $2
        AND v.memory_id = ANY(ARRAY(SELECT memory_id FROM page)) RETURNING 1
)
SELECT count(*) FROM marked
"""


@dataclass(frozen=True)
class Wanted:
    """Agents, types and instant (None: now) of the memories, and the question's vector with its embedder."""

    namespace: str
    agents: list[str]
    types: tuple[memory_types.MemoryType, ...]
    at: datetime | None = None
    vector: Any = None
    embedder: str | None = None

    def arguments(self) -> tuple[Any, ...]:
        """$2 to $6 of the statements that read."""
        vector = None if self.vector is None else HalfVector(self.vector)
        return self.agents, self.codes(), self.at, self.embedder, vector

    def codes(self) -> list[int]:
        return [memory_types.CODES[name] for name in self.types]


class Candidates:
    """Reads the memories that are worth ranking.

    Args:
        vectors: proposes the nearest of a large agent; None without an embedder.
        exact_up_to: memories of an agent that are all ranked.
    """

    def __init__(self, db: Database, vectors: VectorStore | None, exact_up_to: int) -> None:
        self._db = db
        self._vectors = vectors
        self._exact_up_to = exact_up_to

    async def read(self, wanted: Wanted, question: Question) -> tuple[Memories, Population | None]:
        """The memories, and what they were chosen from; None for everything."""
        [row] = await self._db.fetch_as(wanted.namespace, _EVERYTHING, *wanted.arguments())
        if not row["large"]:
            return await _decided(row), None
        words, amounts = (each.astype(np.int64).tolist() for each in (question.stems, question.amounts))
        rows = await self._db.fetch_as(wanted.namespace, _COUNTS, wanted.agents, [*words, *amounts, ALL, STEMS])
        counts = {each["word"]: each["n"] for each in rows}
        size = int(counts.get(ALL, 0))
        frequency = np.array([counts.get(word, 0.0) for word in words])
        rarity = np.log1p((np.maximum(size - frequency, 0) + 0.5) / (frequency + 0.5))
        length = max(counts.get(STEMS, 0.0) / max(size, 1), 1.0)
        looked_at, dated = _rarest(frequency), _rarest(np.array([counts.get(word, 0.0) for word in amounts]))
        chosen = [words[place] for place in looked_at] + [amounts[place] for place in dated]
        worths = [float(rarity[place]) for place in looked_at] + [0.0] * len(dated)
        speakers = np.append(question.names, question.speakers).tolist(), question.of_all
        most = ALIKE if wanted.at is None and len(wanted.types) == len(memory_types.CODES) else MOST_POSTINGS
        given = wanted.agents, chosen, worths, wanted.codes(), wanted.at, *speakers, length, most
        ids = [each["memory_id"] for each in await self._db.fetch_as(wanted.namespace, _CHOSEN, *given)]
        ids += await self._nearest(wanted)
        [row] = await self._db.fetch_as(wanted.namespace, _NAMED, *wanted.arguments(), ids)
        return await _decided(row), Population(size, frequency, length)

    async def named(self, wanted: Wanted, kinds: Mapping[UUID, int]) -> Memories:
        """Those of these ids that the question may see, with the kinds that were decided among all of their agent."""
        [row] = await self._db.fetch_as(wanted.namespace, _NAMED, *wanted.arguments(), list(kinds))
        memories, _ = _columns(row)
        return replace(memories, kinds=np.array([kinds[UUID(bytes=each.tobytes())] for each in memories.ids], np.int64))

    async def sizes(self, namespace: str, agents: Sequence[str]) -> dict[str, int]:
        rows = await self._db.fetch_as(namespace, _SIZES, list(agents))
        return {row["agent_id"]: row["n"] for row in rows}

    async def list_words(self, namespace: str) -> int:
        """Lists the stems of large agents' memories, a batch of each; returns how many memories those were."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_WAITING, namespace, self._exact_up_to, AFTER)
        done = 0
        for row in rows:
            async with self._db.tenant(namespace) as connection:
                done += await connection.fetchval(_LIST, namespace, row["agent_id"])
        return done

    async def _nearest(self, wanted: Wanted) -> list[UUID]:
        if wanted.vector is None or self._vectors is None:
            return []
        types = None if len(wanted.types) == len(memory_types.CODES) else wanted.codes()
        near = Near(wanted.embedder or "", wanted.vector, NEAREST, types, wanted.at)
        ids: list[UUID] = []
        for agent in wanted.agents:
            ids += await self._vectors.nearest(wanted.namespace, agent, near)
        return ids


def _rarest(frequency: Any) -> list[int]:
    """Places of the rarest stems, as many as MOST_POSTINGS allows, and one at least."""
    places: list[int] = []
    postings = 0.0
    for place in np.argsort(frequency, kind="stable").tolist():
        if frequency[place] == 0:
            continue
        if places and postings + frequency[place] > MOST_POSTINGS:
            break
        places.append(place)
        postings += frequency[place]
    return places


async def _decided(row: Any) -> Memories:
    """The columns of an answer; statements of other types than wanted end what they end, and go."""
    memories, wanted = _columns(row)
    kinds = await asyncio.to_thread(standing_kinds, memories) if len(memories) > FEW else standing_kinds(memories)
    memories = replace(memories, kinds=kinds)
    return memories if wanted.all() else memories.only(wanted)


def _columns(row: Any) -> tuple[Memories, NDArray[np.bool_]]:
    """The memories, and which are of a type that is wanted."""
    facts = np.frombuffer(row["facts"] or b"", _FACTS)
    memories = Memories(
        ids=np.frombuffer(row["ids"] or b"", np.uint8).reshape(-1, 16),
        words=np.frombuffer(row["terms"] or b"", "<u4").astype(np.uint32),
        about=np.frombuffer(row["about"] or b"", "<u4").astype(np.uint32),
        distinct=(np.frombuffer(row["lengths"] or b"", ">i4") // 4).astype(np.int64),
        persons=facts["persons"],
        outcomes=facts["outcomes"].astype(np.float64),
        cosines=facts["cosines"].astype(np.float64),
        **{name: facts[name].astype(np.int64) for name in (*_BIG, "kinds", "named", "roots")},
    )
    return memories, facts["wanted"]
