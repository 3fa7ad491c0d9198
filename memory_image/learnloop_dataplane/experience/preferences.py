"""Preferences of people between two answers: stored once by id, redacted, and read back to learn from."""

from typing import Any

import orjson
from pydantic_core import to_json

from learnloop_api.wire.language import MAX_TEXT, Preference
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.concurrency.limits import in_thread_if_large
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.experience.trajectories import Accepted
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users, hold_off
from learnloop_dataplane.privacy.redaction import redact, redact_text

MOST = 20
"""Preferences of a page: each may hold two whole conversations."""
MOST_OF_AGENT = 100_000
"""As many as a run reads; of more, the oldest go."""
_PUT = """
INSERT INTO preferences (namespace, preference_id, agent_id, user_hash, sessions, body)
VALUES ($1, $2, $3, $4, $5::text[], $6) ON CONFLICT (namespace, preference_id) DO NOTHING RETURNING seq
"""
_TRIM = """
DELETE FROM preferences WHERE namespace = $1 AND agent_id = $2 AND seq <= (
    SELECT seq FROM preferences WHERE namespace = $1 AND agent_id = $2 ORDER BY seq DESC OFFSET $3 LIMIT 1)
"""
_ERASED = """
SELECT 1 FROM erasures WHERE namespace = $1 AND subject = ANY($2::text[]) AND erased_at >= $3 LIMIT 1
"""
_PAGE = """
SELECT seq, body::text AS body FROM preferences WHERE namespace = $1 AND agent_id = $2 AND seq < $3
ORDER BY seq DESC LIMIT $4
"""
_NEWEST = 2**63 - 1


class Preferences:
    """Of all namespaces."""

    def __init__(self, db: Database, users: Users) -> None:
        self._db, self._users = db, users

    async def give(self, namespace: str, preference: Preference) -> Accepted:
        """Keep one; the same id again is the same preference. Not stored: the person opted out, or they or the agent
        were erased since.
        """
        body = await in_thread_if_large(namespace, redacted, preference)
        sessions = sorted({turn.session for one in (preference.chosen, preference.rejected) for turn in one.turns})
        async with self._db.tenant(namespace) as connection:
            user: str | None = None
            if preference.user_id is not None:
                user = (await self._users.hashes(connection, namespace, [preference.user_id]))[preference.user_id]
            await hold_off(connection, namespace)
            if user is not None and await self._users.opted_out(connection, namespace, [user]):
                return Accepted(duplicate=False, stored=False)
            subjects = [f"agent/{preference.agent}", *([f"user/{user}"] if user is not None else [])]
            if await connection.fetchval(_ERASED, namespace, subjects, preference.at):
                return Accepted(duplicate=False, stored=False)
            body["user_id"] = user
            written = to_json(body).decode()
            key = (namespace, preference.preference_id, preference.agent, user, sessions)
            seq = await connection.fetchval(_PUT, *key, written)
            if seq is None:
                return Accepted(duplicate=True, stored=True)
            if seq % 1000 == 0:  # now and then is enough: it only bounds what a namespace may fill
                await connection.execute(_TRIM, namespace, preference.agent, MOST_OF_AGENT)
            detail = {"agent": preference.agent} | ({"user": user} if user is not None else {})
            await note(connection, namespace, "preference.given", f"preference/{preference.preference_id}", detail)
        return Accepted(duplicate=False, stored=True)

    async def page(self, namespace: str, agent: str, limit: int, after: str | None) -> bytes:
        """At most `limit` of them as JSON (wire.PreferencePage), newest first.

        Raises:
            Invalid: `after` is not the `next` of a page.
        """
        if after is not None and not (after.isascii() and after.isdigit() and len(after) <= 18):
            raise Invalid("not the next of a page; send it as it was answered", field="after", value=after)
        async with self._db.tenant(namespace) as connection:
            before = _NEWEST if after is None else int(after)
            rows = await connection.fetch(_PAGE, namespace, agent, before, limit)
        following = str(rows[-1]["seq"]) if len(rows) == limit else None
        bodies = b",".join(row["body"].encode() for row in rows)
        return b'{"preferences":[%b],"next":%b}' % (bodies, orjson.dumps(following))


def redacted(preference: Preference) -> dict[str, Any]:
    """As it may lie here. Ids of tokens stay: who recorded the turns redacts, or leaves out, what they say."""
    body = preference.model_dump(mode="json")
    for message in body["messages"]:
        message["content"] = redact_text(message["content"])[:MAX_TEXT]
    for answer in (body["chosen"], body["rejected"]):
        if answer["text"] is not None:
            answer["text"] = redact_text(answer["text"])[:MAX_TEXT]
        for turn in answer["turns"]:
            turn["tool_calls"], turn["tool_results"] = redact(turn["tool_calls"]), redact(turn["tool_results"])
    return body
