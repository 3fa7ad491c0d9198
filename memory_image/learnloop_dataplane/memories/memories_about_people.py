"""Stores memories that may be about a person: by pseudonym only, and none once that person opted out."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from learnloop_dataplane.memories.memory_store import NewMemory, insert, known_ids
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users, hold_off
from learnloop_dataplane.text.analysis import Analyzer

USER, PEOPLE = "user", "people"
"""Where a memory's provenance has the pseudonym of its person, and of those whose episodes it was distilled from;
erasures look for them there."""


def about(memory: NewMemory) -> str:
    """The pseudonym of the person that it is about; empty without one."""
    return str((memory.provenance or {}).get(USER, ""))


async def name_people(
    db: Database, users: Users, namespace: str, given: Iterable[tuple[NewMemory, str | None]]
) -> None:
    """Writes its person into each memory; a pseudonym stays what it is.

    Args:
        given: a memory, and the person as the application knows them; None: it is about no person.

    Raises:
        Unavailable: the namespace's key cannot be read.
    """
    about = [(memory, user) for memory, user in given if user is not None]
    if not about:
        return
    async with db.tenant(namespace) as connection:
        hashes = await users.hashes(connection, namespace, {user for _, user in about})
    for memory, user in about:
        memory.provenance = {**(memory.provenance or {}), USER: hashes[user]}


async def name_sources(
    db: Database, users: Users, namespace: str, given: Iterable[tuple[NewMemory, Sequence[str]]]
) -> None:
    """Writes into each memory the people it was distilled from; a pseudonym stays what it is.

    Raises:
        Unavailable: the namespace's key cannot be read.
    """
    about = [(memory, people) for memory, people in given if people]
    if not about:
        return
    async with db.tenant(namespace) as connection:
        hashes = await users.hashes(connection, namespace, {person for _, people in about for person in people})
    for memory, people in about:
        named = sorted({hashes[person] for person in people})
        memory.provenance = {**(memory.provenance or {}), PEOPLE: named}


async def opted_out(connection: Any, users: Users, namespace: str, memories: Sequence[NewMemory]) -> set[UUID]:
    """Those of these that are about people who opted out, or were distilled from their episodes.

    No person can opt out between this and the end of the caller's transaction: a memory that is written in it either
    comes after the opt-out and is not written, or is there when the opt-out erases.
    """
    about = {memory.id: people for memory in memories if (people := _named(memory.provenance or {}))}
    if not about:
        return set()
    await hold_off(connection, namespace)
    out = await users.opted_out(connection, namespace, set().union(*about.values()))
    return {identity for identity, people in about.items() if people & out}


async def store_many(
    db: Database, users: Users, namespace: str, memories: Sequence[NewMemory], analyzer: Analyzer
) -> list[tuple[UUID, bool] | None]:
    """Stores all of them or none; for each its id and whether it was there already, None where its person opted out.

    Raises:
        ApiError: 409, a key was used for something else; nothing was written.
        Unavailable: nothing was written.
    """
    async with db.tenant(namespace) as connection:
        out = await opted_out(connection, users, namespace, memories)
        ours = [memory for memory in memories if memory.id not in out]
        new = await insert(connection, namespace, ours, analyzer)
        known = await known_ids(connection, namespace, [memory for memory in ours if memory.id not in new])
    return [
        None if memory.id in out else (known.get(memory.id, memory.id), memory.id not in new) for memory in memories
    ]


def _named(provenance: dict[str, Any]) -> set[str]:
    return {*([provenance[USER]] if USER in provenance else []), *provenance.get(PEOPLE, [])}
