"""One erasure from request to receipt, in tables and in the messages of a stream."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from learnloop_api import names
from learnloop_dataplane import errors, privacy
from learnloop_dataplane.audit.chain import Sealer, actor, note
from learnloop_dataplane.erasure.erased_before_restore import LastingRecords
from learnloop_dataplane.erasure.erased_rows import Erased, Scope, erase, of_person
from learnloop_dataplane.nats.connection import REWARDS, Bus
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.recall.recall import RecallLog
from learnloop_dataplane.rewards.human_feedback import UserFeedback
from learnloop_dataplane.vectors.vector_store import VectorStore
from learnloop_dataplane.warehouse import ClickHouse

log = logging.getLogger(__name__)
BATCH = 256
IDLE_SECONDS = 60.0
FETCH_SECONDS = 1.0


class Matcher:
    """Says whether a reward belongs to what was erased.

    Args:
        digests: of every episode ever erased for this subject.
        erased_at: what was computed later came after the erasure and stays.
    """

    def __init__(self, namespace: str, scope: Scope, digests: Collection[str], erased_at: datetime) -> None:
        self._namespace, self._scope = namespace, scope
        self._digests, self._erased_at = frozenset(digests), erased_at

    def __call__(self, message: Msg) -> bool:
        """By the episode's id, or by the agent."""
        body = orjson.loads(message.data)
        if privacy.digest_of(self._namespace, body["trajectory_id"]) in self._digests:
            return True
        return self._scope.agent is not None and datetime.fromisoformat(body["computed_at"]) <= self._erased_at


async def erase_messages(bus: Bus, namespace: str, scope: Scope, matches: Matcher) -> dict[str, int]:
    """Takes every matching message out of the stream; returns how many by stream.

    Reads the namespace's own messages, some ten thousand a second; an agent's subject is read alone.

    Raises:
        Unavailable: NATS does not answer; what was not erased yet is found by the next attempt.
    """
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=IDLE_SECONDS
    )
    subject, erased = f"{names.SUBJECT_REWARD}.{namespace}.{scope.agent or '>'}", 0
    try:
        reader = await bus.js.pull_subscribe(subject, stream=REWARDS, config=config)
        try:
            while left := (await reader.consumer_info()).num_pending or 0:
                try:
                    messages = await reader.fetch(min(BATCH, left), timeout=FETCH_SECONDS)
                except TimeoutError:  # another erasure took away what was left
                    continue
                for message in filter(matches, messages):
                    erased += await _delete(bus, message.metadata.sequence.stream)
        finally:
            await reader.unsubscribe()
    except (NatsError, TimeoutError, OSError) as error:
        log.warning("NATS: %s could not be searched: %r", REWARDS, error)
        raise errors.Unavailable("NATS") from error
    return {REWARDS: erased}


async def _delete(bus: Bus, sequence: int) -> int:
    try:
        return int(await bus.js.delete_msg(REWARDS, sequence))
    except APIError:
        # Perhaps another erasure was quicker; the server says so by an error that says other things as well.
        with suppress(NotFoundError):
            await bus.js.get_msg(REWARDS, sequence)
            raise
        return 0


REMAINS = (
    "models trained before",
    "sums over many episodes: normalisation, an agent's totals",
    "the audit chain, which names people by pseudonym only",
)
_DIGESTS = "SELECT digest FROM erased_trajectories WHERE namespace = $1 AND subject = $2"


@dataclass(frozen=True)
class Receipt:
    """Proof of an erasure: `audit_seq` and `audit_hash` are its place in the audit chain.

    `warehouse`: no query finds anything of the subject there any more, or there is none.
    """

    erasure_id: UUID
    namespace: str
    subject: str
    erased_at: datetime
    rows: dict[str, int]
    messages: dict[str, int]
    warehouse: Literal["erased", "none"]
    remains: list[str]
    audit_seq: int
    audit_hash: str


def _action(scope: Scope) -> str:
    return "user.erased" if scope.user is not None else "agent.erased"


@contextmanager
def _after_the_rows(what: str) -> Iterator[None]:
    try:
        yield
    except (errors.StoreAway, errors.Unavailable) as error:
        message = f"the rows are erased, the {what} are not yet: {error}"
        raise errors.ApiError(503, message, retry_after=5) from error


class Erasing:
    """Erases rows, vectors, what the warehouse has and messages, and says so in the audit chain.

    Twice: `begun` is committed with the deletion of the rows, so none are gone without a record whatever happens next;
    `done` follows when nothing of the subject is left anywhere. Both name the erasure; one that was cut short has a
    `begun` of its own, and the next has both.
    """

    def __init__(
        self,
        db: Database,
        bus: Bus | None,
        users: privacy.Users,
        feedback: UserFeedback,
        recalls: RecallLog,
        vectors: VectorStore | None,
        warehouse: ClickHouse | None,
        sealer: Sealer,
        records: LastingRecords,
    ) -> None:
        self._db = db
        self._records = records
        self._bus = bus
        self._users = users
        self._feedback = feedback
        self._recalls = recalls
        self._vectors = vectors
        self._warehouse = warehouse
        self._sealer = sealer

    async def erase(self, namespace: str, *, user_id: str | None = None, agent: str | None = None) -> Receipt:
        """Erases one person, by id or pseudonym, or one agent. Again is fine: it finds what is new or was left.

        Raises:
            Unavailable: PostgreSQL does not answer; nothing was erased.
            Unavailable: the artifact store does not, which remembers erasures when an older database is restored;
                nothing was erased.
            ApiError: 503, NATS, the vector store or the warehouse does not: the rows are gone, and asking again erases
                the rest and gives the receipt.
        """
        return await self._erase(namespace, await self._scope(namespace, user_id, agent))

    async def again(self) -> int:
        """Repeats the erasures and opt-outs that a restored database lacks; returns how many.

        Raises:
            Unavailable, ApiError: as for `erase`.
        """
        done = 0
        for namespace, lost in await self._records.lost(self._db):
            for user in sorted(lost.opted_out):
                async with self._db.tenant(namespace) as connection:
                    await privacy.alone(connection, namespace)
                    await self._users.opt_out(connection, namespace, user)
            for subject, at in sorted(lost.erased.items()):
                await self._erase(namespace, Scope.of(subject), at)
            done += len(lost.opted_out) + len(lost.erased)
        return done

    async def _erase(self, namespace: str, scope: Scope, recorded: datetime | None = None) -> Receipt:
        """`recorded`: when it was erased before; left out, it is erased now."""
        identity = uuid7()
        erased, at = await self._rows(namespace, scope, identity, recorded)
        with _after_the_rows("vectors"):
            if self._vectors is not None:
                await self._vectors.erased(namespace, scope.agent)
        with _after_the_rows("rows in the warehouse"):  # its shipper does it again for what is under way there
            if self._warehouse is not None:
                await self._warehouse.erase(namespace, *scope.attribute, at)
        with _after_the_rows("messages in NATS"):
            messages = await self._messages(namespace, scope, at)
        warehouse: Literal["erased", "none"] = "none" if self._warehouse is None else "erased"
        detail = {"erasure_id": str(identity), "rows": erased.rows, "messages": messages, "warehouse": warehouse}
        link = await self._sealer.append(namespace, _action(scope), scope.subject, actor.get(), detail)
        place = (link.entry.seq, link.hash.hex())
        return Receipt(identity, namespace, scope.subject, at, erased.rows, messages, warehouse, list(REMAINS), *place)

    async def memories_of(self, namespace: str, user_id: str) -> list[UUID]:
        """Ids of the memories that an erasure of this person would take now; ended ones too."""
        async with self._db.tenant(namespace) as connection:
            person = (await self._users.hashes(connection, namespace, [user_id]))[user_id]
            return await of_person(connection, namespace, person)

    async def opt_out(self, namespace: str, user_id: str) -> None:
        """Nothing of this person is stored from now on, and what was is erased.

        Raises:
            Unavailable, ApiError: as for `erase`; asking again does the rest.
        """
        scope = await self._scope(namespace, user_id, None)
        async with self._db.tenant(namespace) as connection:
            await privacy.alone(connection, namespace)
            await self._records.opted_out(namespace, scope.user or "")
            await self._users.opt_out(connection, namespace, scope.user or "")
        await self.erase(namespace, user_id=user_id)

    async def opt_in(self, namespace: str, user_id: str) -> None:
        """Ends the opt-out.

        Raises:
            Unavailable: PostgreSQL or the artifact store does not answer; the person may still be opted out.
        """
        scope = await self._scope(namespace, user_id, None)
        await self._records.opted_in(namespace, scope.user or "")
        await self._users.opt_in(namespace, user_id)

    async def _scope(self, namespace: str, user_id: str | None, agent: str | None) -> Scope:
        if user_id is None:
            return Scope(agent=agent)
        async with self._db.tenant(namespace) as connection:
            return Scope(user=(await self._users.hashes(connection, namespace, [user_id]))[user_id])

    async def _rows(
        self, namespace: str, scope: Scope, identity: UUID, recorded: datetime | None
    ) -> tuple[Erased, datetime]:
        await self._recalls.flush()  # what is logged later could name what is gone
        async with self._db.tenant(namespace) as connection:
            await privacy.alone(connection, namespace)
            at = await privacy.mark(connection, namespace, scope.subject, recorded)
            if recorded is None:
                await self._records.erased(namespace, scope.subject, at)
            erased = await erase(connection, namespace, scope)
            for trajectory_id in sorted(erased.touched):
                await self._feedback.join(connection, namespace, trajectory_id)
            detail = {"erasure_id": str(identity), "rows": erased.rows}
            await note(connection, namespace, _action(scope), scope.subject, detail, outcome="begun")
        return erased, at

    async def _messages(self, namespace: str, scope: Scope, at: datetime) -> dict[str, int]:
        if self._bus is None:
            return {}
        async with self._db.tenant(namespace) as connection:
            digests = [row["digest"] for row in await connection.fetch(_DIGESTS, namespace, scope.subject)]
        return await erase_messages(self._bus, namespace, scope, Matcher(namespace, scope, digests, at))
