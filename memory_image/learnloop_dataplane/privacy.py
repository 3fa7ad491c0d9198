"""People behind the episodes: known by a keyed hash only, and able to opt out.

The key is made once for each namespace and never leaves the database: a hash cannot be found by trying names, and one
person is two strangers in two namespaces. An id that opted out is not stored anywhere, not even in the list of those
who did: that holds hashes.
"""

import hmac
import os
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

from learnloop_api.wire.trajectory import Trajectory
from learnloop_common.key_rotation import KeyLines
from learnloop_common.redaction.redactor import Redaction, user_as_sent
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.postgres.database import Database

_rules = Redaction()


def use_keys(keys: KeyLines | None) -> None:
    """From now on pseudonyms are made with the one of these that is in use; None: none are made.

    Raises:
        ValueError: a key is shorter than 16 bytes.
    """
    global _rules
    _rules = Redaction(keys)


def redact_text(value: str) -> str:
    return _rules.text(value)


def redact(value: Any) -> Any:
    return _rules.value(value)


METADATA_KEY = "user_id"
_HASHED = re.compile(r"user:[0-9a-f]{32}")
_MAKE_KEY = "INSERT INTO user_keys (namespace, key) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_KEY = "SELECT key FROM user_keys WHERE namespace = $1"
_OPTED_OUT = "SELECT user_hash FROM user_opt_outs WHERE namespace = $1 AND user_hash = ANY($2::text[])"
_OPT_OUT = "INSERT INTO user_opt_outs (namespace, user_hash) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_OPT_IN = "DELETE FROM user_opt_outs WHERE namespace = $1 AND user_hash = $2"


class Users:
    """Hashes and opt-outs of all namespaces."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def opt_out(self, connection: Any, namespace: str, user: str) -> None:
        """From now on nothing of the user with this hash is stored; what was is for the caller to erase."""
        await connection.execute(_OPT_OUT, namespace, user)
        await note(connection, namespace, "user.opted-out", f"user/{user}")

    async def opt_in(self, namespace: str, user_id: str) -> None:
        """Ends the opt-out."""
        async with self._db.tenant(namespace) as connection:
            user = (await self.hashes(connection, namespace, [user_id]))[user_id]
            await connection.execute(_OPT_IN, namespace, user)
            await note(connection, namespace, "user.opted-in", f"user/{user}")

    async def shield(self, namespace: str, trajectories: Mapping[int, Trajectory]) -> dict[int, Trajectory | None]:
        """The trajectories with their users hashed; None for those of users who opted out.

        Args:
            trajectories: by any key; the answer has the same keys.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        users = {item.metadata[METADATA_KEY] for item in trajectories.values() if METADATA_KEY in item.metadata}
        if not users:
            return dict(trajectories)
        async with self._db.tenant(namespace) as connection:
            hashes = await self.hashes(connection, namespace, users)
            out = await self.opted_out(connection, namespace, hashes.values())
        return {key: _shielded(item, hashes, out) for key, item in trajectories.items()}

    async def hashes(self, connection: Any, namespace: str, user_ids: Collection[str]) -> dict[str, str]:
        """`user:` and 128 bits of HMAC-SHA256 for each id; what is such a hash already stays."""
        key = await self.key(connection, namespace)
        return {user: pseudonym(key, user) for user in user_ids}

    async def key(self, connection: Any, namespace: str) -> bytes:
        """The namespace's key, made when there is none."""
        await connection.execute(_MAKE_KEY, namespace, os.urandom(32))
        key: bytes = await connection.fetchval(_KEY, namespace)
        return key

    async def opted_out(self, connection: Any, namespace: str, hashes: Collection[str]) -> set[str]:
        """Those of these hashes that opted out."""
        rows = await connection.fetch(_OPTED_OUT, namespace, list(hashes))
        return {row["user_hash"] for row in rows}


def _shielded(trajectory: Trajectory, hashes: Mapping[str, str], out: set[str]) -> Trajectory | None:
    if METADATA_KEY not in trajectory.metadata:
        return trajectory
    user = hashes[trajectory.metadata[METADATA_KEY]]
    if user in out:
        return None
    return trajectory.model_copy(update={"metadata": {**trajectory.metadata, METADATA_KEY: user}})


def pseudonym(key: bytes, user: str) -> str:
    """`user:` and 128 bits of HMAC-SHA256; what is such a hash already stays. It is the same for an id as the SDK sends
    it and as an application that asks by REST has it."""
    if _HASHED.fullmatch(user):
        return user
    sent = user_as_sent(user).encode("utf-8", "replace")
    return "user:" + hmac.digest(key, sent, "sha256").hex()[:32]


# Writers of episodes hold it together, an erasure holds it alone: an episode on its way is either there to be erased or
# comes after its tombstone. A statement of its own, so that the one behind it sees what was committed meanwhile.
_SHARE = "SELECT pg_advisory_xact_lock_shared(hashtextextended('erasure/' || $1, 0))"
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('erasure/' || $1, 0))"
_REFUSED = """
SELECT t.trajectory_id
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    AS t(trajectory_id, digest, agent, person, ended_at)
WHERE EXISTS (SELECT 1 FROM erased_trajectories e WHERE e.namespace = $1 AND e.digest = t.digest)
    OR EXISTS (SELECT 1 FROM user_opt_outs o WHERE o.namespace = $1 AND 'user/' || o.user_hash = t.person)
    OR EXISTS (SELECT 1 FROM erasures e
        WHERE e.namespace = $1 AND e.subject IN (t.agent, t.person) AND t.ended_at <= e.erased_at)
"""
_ERASED = "SELECT 1 FROM erased_trajectories WHERE namespace = $1 AND digest = $2"
_BURY = """
INSERT INTO erased_trajectories (namespace, digest, subject) SELECT $1, unnest($2::text[]), $3 ON CONFLICT DO NOTHING
"""
_MARK = """
INSERT INTO erasures (namespace, subject, erased_at) VALUES ($1, $2, coalesce($3, clock_timestamp()))
ON CONFLICT (namespace, subject) DO UPDATE SET erased_at = greatest(erasures.erased_at, excluded.erased_at)
RETURNING erased_at
"""


class ErasableEpisode(Protocol):
    """Fields by which an erased episode is recognised."""

    @property
    def trajectory_id(self) -> str:
        """Its own id."""

    @property
    def agent(self) -> str:
        """The agent that played it."""

    @property
    def user(self) -> str | None:
        """Hash of the person it belongs to."""

    @property
    def ended_at(self) -> datetime:
        """By the sender's clock."""


def digest_of(namespace: str, trajectory_id: str) -> str:
    """The name of an erased episode."""
    return sha256(f"{namespace}/{trajectory_id}".encode("utf-8", "replace")).hexdigest()


async def hold_off(connection: Any, namespace: str) -> None:
    """Until the caller's transaction ends, no erasure and no opt-out of this namespace begins; what follows in it sees
    all that were over."""
    await connection.execute(_SHARE, namespace)


async def refused(connection: Any, namespace: str, episodes: Sequence[ErasableEpisode]) -> set[str]:
    """The ids of those that must not be stored: erased, or of someone who opted out. Until the caller's transaction
    ends, no erasure of this namespace begins."""
    await hold_off(connection, namespace)
    rows = await connection.fetch(
        _REFUSED,
        namespace,
        [item.trajectory_id for item in episodes],
        [digest_of(namespace, item.trajectory_id) for item in episodes],
        [f"agent/{item.agent}" for item in episodes],
        [None if item.user is None else f"user/{item.user}" for item in episodes],
        [item.ended_at for item in episodes],
    )
    return {row["trajectory_id"] for row in rows}


async def is_erased(connection: Any, namespace: str, trajectory_id: str) -> bool:
    """Whether this episode was erased. Until the caller's transaction ends, no erasure of this namespace begins."""
    await hold_off(connection, namespace)
    return bool(await connection.fetchval(_ERASED, namespace, digest_of(namespace, trajectory_id)))


async def alone(connection: Any, namespace: str) -> None:
    """Waits for every writer of episodes and holds off those that follow, until the transaction ends."""
    await connection.execute(_ALONE, namespace)


async def mark(connection: Any, namespace: str, subject: str, at: datetime | None = None) -> datetime:
    """From now on nothing of this subject that ended before this instant is stored; returns the instant.

    Args:
        at: of an erasure that was made before; left out, now.
    """
    marked: datetime = await connection.fetchval(_MARK, namespace, subject, at)
    return marked


async def bury(connection: Any, namespace: str, subject: str, trajectory_ids: Collection[str]) -> None:
    """These episodes never come back."""
    digests = [digest_of(namespace, item) for item in trajectory_ids]
    await connection.execute(_BURY, namespace, digests, subject)
