"""People behind the episodes: known by a keyed hash only, and able to opt out.

The key is made once for each namespace and never leaves the database: a hash cannot be found by trying names, and one
person is two strangers in two namespaces. An id that opted out is not stored anywhere, not even in the list of those
who did: that holds hashes.
"""

import hmac
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from learnloop_api.wire.trajectory import Trajectory
from learnloop_common.redaction.redactor import user_as_sent
from learnloop_dataplane.audit.journal import note
from learnloop_dataplane.postgres.database import Database

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
        """Takes the opt-out back."""
        async with self._db.tenant(namespace) as connection:
            user = (await self.hashes(connection, namespace, [user_id]))[user_id]
            await connection.execute(_OPT_IN, namespace, user)
            await note(connection, namespace, "user.opted-in", f"user/{user}")

    async def shield(self, namespace: str, trajectories: Mapping[int, Trajectory]) -> dict[int, Trajectory | None]:
        """The trajectories with their users hashed; None for those of users who opted out.

        Args:
            trajectories: by any key; the answer has the same keys.

        Raises:
            Unavailable: nothing is known.
        """
        asked = {item.metadata[METADATA_KEY] for item in trajectories.values() if METADATA_KEY in item.metadata}
        if not asked:
            return dict(trajectories)
        async with self._db.tenant(namespace) as connection:
            hashes = await self.hashes(connection, namespace, asked)
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
