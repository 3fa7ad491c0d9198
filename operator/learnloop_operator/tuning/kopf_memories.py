"""Kopf's memory of objects, for an operator whose handlers use none of it.

Kopf keeps a kilobyte of memos, locks and back-offs for each object that it watches, the children included. This module
imports from Kopf's private `_core`; with the part `stateless-kopf` off nobody imports it, and Kopf remembers as usual.
"""

from typing import Any

from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory


class NoMemories(ResourceMemories):
    """Each event meets a fresh memory."""

    async def recall(self, raw_body: Any, **options: Any) -> ResourceMemory:
        """A memory of its own, forgotten with the event."""
        return await super().recall(raw_body, **{**options, "ephemeral": True})
