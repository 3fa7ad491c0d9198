"""What was erased is known again: by the episode's own id, and by whom it came from and when it ended."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol

from learnloop_dataplane.privacy import keyed_digests

# Writers of episodes hold it together, an erasure holds it alone: an episode on its way is either there to be erased or
# comes after its tombstone. A statement of its own, so that the one behind it sees what was committed meanwhile.
_SHARE = "SELECT pg_advisory_xact_lock_shared(hashtextextended('erasure/' || $1, 0))"
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('erasure/' || $1, 0))"
_REFUSED = """
SELECT t.trajectory_id
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    AS t(trajectory_id, digests, agent, person, ended_at)
WHERE EXISTS (SELECT 1 FROM erased_trajectories e
        WHERE e.namespace = $1 AND e.digest = ANY(string_to_array(t.digests, ' ')))
    OR EXISTS (SELECT 1 FROM user_opt_outs o WHERE o.namespace = $1 AND 'user/' || o.user_hash = t.person)
    OR EXISTS (SELECT 1 FROM erasures e
        WHERE e.namespace = $1 AND e.subject IN (t.agent, t.person) AND t.ended_at <= e.erased_at)
"""
_ERASED = "SELECT 1 FROM erased_trajectories WHERE namespace = $1 AND digest = ANY($2::text[])"
_BURY = """
INSERT INTO erased_trajectories (namespace, digest, subject) SELECT $1, unnest($2::text[]), $3 ON CONFLICT DO NOTHING
"""
_MARK = """
INSERT INTO erasures (namespace, subject, erased_at) VALUES ($1, $2, coalesce($3, clock_timestamp()))
ON CONFLICT (namespace, subject) DO UPDATE SET erased_at = greatest(erasures.erased_at, excluded.erased_at)
RETURNING erased_at
"""


class ErasableEpisode(Protocol):
    """What tells whether an episode was erased."""

    @property
    def trajectory_id(self) -> str:
        """Its own id."""

    @property
    def agent(self) -> str:
        """Whose episode it is."""

    @property
    def user(self) -> str | None:
        """Hash of the person it belongs to."""

    @property
    def ended_at(self) -> datetime:
        """By the sender's clock."""


def digests_of(namespace: str, trajectory_id: str) -> tuple[str, ...]:
    """How an erased episode is or was remembered: by the installation's keys, and before there was one."""
    content = _content(namespace, trajectory_id)
    return (*keyed_digests.known("erased episode", content), keyed_digests.plain(content))


def _content(namespace: str, trajectory_id: str) -> bytes:
    return f"{namespace}/{trajectory_id}".encode("utf-8", "replace")


async def hold_off(connection: Any, namespace: str, *, seconds: float | None = None) -> None:
    """Until the caller's transaction ends, no erasure and no opt-out of this namespace begins; what follows in it sees
    all that were over.

    Args:
        seconds: to wait for one that is under way; left out, as long as any statement may take.
    """
    await connection.execute(_SHARE, namespace, timeout=seconds)


async def refused(connection: Any, namespace: str, episodes: Sequence[ErasableEpisode]) -> set[str]:
    """The ids of those that must not be stored: erased, or of someone who opted out. Until the caller's transaction
    ends, no erasure of this namespace begins."""
    await hold_off(connection, namespace)
    digests = [digests_of(namespace, item.trajectory_id) for item in episodes]
    rows = await connection.fetch(
        _REFUSED,
        namespace,
        [item.trajectory_id for item in episodes],
        [" ".join(known) for known in digests],
        [f"agent/{item.agent}" for item in episodes],
        [None if item.user is None else f"user/{item.user}" for item in episodes],
        [item.ended_at for item in episodes],
    )
    return {row["trajectory_id"] for row in rows}


async def is_erased(connection: Any, namespace: str, trajectory_id: str) -> bool:
    """Was this episode erased? Until the caller's transaction ends, no erasure of this namespace begins."""
    await hold_off(connection, namespace)
    return bool(await connection.fetchval(_ERASED, namespace, digests_of(namespace, trajectory_id)))


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
    made = [keyed_digests.digest("erased episode", _content(namespace, item)) for item in trajectory_ids]
    await connection.execute(_BURY, namespace, made, subject)
