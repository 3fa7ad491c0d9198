"""Kopf's storages for an operator that keeps nothing in the objects it watches, and nothing of its own about them.

With event handlers only, Kopf still copies every object twice to compute a difference that nobody asks for; at a
thousand objects that is a quarter of the time a start takes. And it keeps a kilobyte of memos, locks and back-offs for
each of them, the children included, of which event handlers use none.
"""

from typing import Any

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory


class NoDifferences(kopf.DiffBaseStorage):
    """Nothing was handled before, nothing is to be compared."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        """No copy."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nowhere."""


class NoProgress(kopf.ProgressStorage):
    """No handler is ever under way."""

    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        """Nothing."""
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nowhere."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing to purge."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Never."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """No copy."""
        return essence


class NoMemories(ResourceMemories):
    """Each event meets a fresh memory."""

    async def recall(self, raw_body: Any, **options: Any) -> ResourceMemory:
        """A memory of its own, forgotten with the event."""
        return await super().recall(raw_body, **{**options, "ephemeral": True})
