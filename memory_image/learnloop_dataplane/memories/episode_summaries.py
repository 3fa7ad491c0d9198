"""Every episode leaves one short episodic memory: what was tried, how it went, and of text what was said and done.

Numbers tell nothing to a search by words: steps that are numbers have none. System messages are left out:
they hold what the agent was given before, its recalled memories among them, and a memory made of recalled ones would
come back as if it had happened again.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import orjson

from learnloop_dataplane import data_keys, stems
from learnloop_dataplane.memories.memory_store import USER, NewMemory, insert
from learnloop_dataplane.postgres.database import Database

BATCH = 200
MOST = 2000  # characters in all: a memory is searched as a whole
EACH = 400  # of one utterance
ENDS = 20  # steps of the beginning and of the end of a long episode
_LEFT_OUT = frozenset({"system", "developer"})
_PENDING = """
SELECT trajectory_id, agent_id, task, status, success, episode_return, steps, policy_revision,
    labels ->> 'user_id' AS person
FROM trajectories WHERE namespace = $1 AND NOT remembered ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""
# Of a long episode its beginning and its end, of a sealed one all; one at a time, since each may have megabytes.
_SPOKEN = f"""
SELECT (CASE WHEN jsonb_typeof(steps) = 'object' OR jsonb_array_length(steps) <= {2 * ENDS} THEN steps
    ELSE jsonb_path_query_array(steps, '$[0 to {ENDS - 1}]')
        || jsonb_path_query_array(steps, '$[last - {ENDS - 1} to last]') END)::text
FROM training_transitions WHERE namespace = $1 AND trajectory_id = $2
"""
_MARK = "UPDATE trajectories SET remembered = true WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"


class EpisodeMemories:
    """Turns stored trajectories into episodic memories, each once: the memory's id follows from the trajectory's."""

    def __init__(self, db: Database, analyzer: stems.Analyzer, cipher: data_keys.StepCipher = data_keys.PLAIN) -> None:
        self._db, self._analyzer, self._cipher = db, analyzer, cipher

    async def run(self, namespace: str) -> int:
        """Handles everything pending in one namespace and returns how many that were."""
        done = 0
        while True:
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_PENDING, namespace, BATCH)
                if rows:
                    memories = [
                        describe(namespace, row, await self._transcript(connection, namespace, row)) for row in rows
                    ]
                    await insert(connection, namespace, memories, self._analyzer)
                    await connection.execute(_MARK, namespace, [row["trajectory_id"] for row in rows])
            done += len(rows)
            if len(rows) < BATCH:
                return done

    async def _transcript(self, connection: Any, namespace: str, row: Any) -> str:
        steps = await connection.fetchval(_SPOKEN, namespace, row["trajectory_id"])
        (log,) = await self._cipher.open(connection, namespace, [data_keys.StepLog(row["trajectory_id"], steps)])
        opened = orjson.loads(log.steps or "[]")
        return transcript_of(opened if len(opened) <= 2 * ENDS else opened[:ENDS] + opened[-ENDS:])


def describe(namespace: str, row: Any, transcript: str = "") -> NewMemory:
    """The memory of one episode; importance grows from 0.3 (failed) to 0.6 (succeeded).

    It names the episode's person (a pseudonym) itself: it may outlive the episode.

    Args:
        transcript: what was said and done; an episode of numbers has nothing of it.
    """
    how = {True: "succeeded", False: "failed", None: row["status"]}[row["success"]]
    task = row["task"] or "unnamed task"
    text = f"{task}: {how} with return {row['episode_return']:g} after {row['steps']} steps"
    if transcript:
        text = f"{task}: {how}\n{transcript}"
    return NewMemory(
        agent=row["agent_id"],
        memory_type="episodic",
        content={
            "text": text,
            "task": row["task"],
            "outcome": how,
            "status": row["status"],
            "return": row["episode_return"],
            "steps": row["steps"],
            "policy_revision": row["policy_revision"],
            "trajectory_id": row["trajectory_id"],
        },
        importance={True: 0.6, False: 0.3, None: 0.4}[row["success"]],
        source="episode",
        origin=f"trajectory/{row['trajectory_id']}",
        provenance={USER: row["person"]} if row["person"] else None,
        id=uuid5(NAMESPACE_OID, f"{namespace}/{row['trajectory_id']}"),
    )


def transcript_of(steps: Sequence[Any]) -> str:
    """A line for each utterance, call and result; of many the first and the last.

    Args:
        steps: of `wire.Step`, as JSON; those of another shape say nothing.
    """
    text = "\n".join(line for step in steps if isinstance(step, dict) for line in _of_step(step))
    # What was asked comes first and what came of it last: of both as much as of the other.
    return text if len(text) <= MOST else f"{text[: MOST // 2 - 2]}\n…\n{text[1 - MOST // 2 :]}"


def _of_step(step: dict[str, Any]) -> Iterator[str]:
    observation, action = step.get("observation"), step.get("action")
    if isinstance(observation, dict) and isinstance(observation.get("messages"), list):
        for message in observation["messages"]:
            yield from _of_message(message, "user")
    elif text := _text(observation):
        yield f"saw: {text}"
    if isinstance(action, dict) and ("content" in action or "tool_calls" in action):
        yield from _of_message(action, "assistant")
    elif text := _text(action):
        yield f"did: {text}"


def _of_message(message: Any, speaker: str) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    role = str(message.get("role") or speaker)[:32]
    if role in _LEFT_OUT:
        return
    if text := _text(message.get("content")):
        yield f"{role}: {text}"
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and function.get("name"):
            arguments = _text(function.get("arguments"))
            yield f"{role} called {_cut(str(function['name']) + ' ' + arguments)}"


def _text(value: Any) -> str:
    """One line of at most 400 characters; nothing of numbers."""
    if isinstance(value, list):  # a message in parts, each with its text; or numbers
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return _cut(" ".join(part for part in parts if isinstance(part, str)))
    if isinstance(value, dict):
        text = next((value[name] for name in ("text", "content") if isinstance(value.get(name), str)), None)
        return _cut(text if text is not None else orjson.dumps(value).decode()) if value else ""
    return _cut(value) if isinstance(value, str) else ""


def _cut(text: str) -> str:
    line = " ".join(text[: 4 * EACH].split())
    return line if len(line) <= EACH else line[: EACH - 1] + "…"
