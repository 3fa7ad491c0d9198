"""Kopf's storages for an operator that keeps nothing in the objects it watches.

With event handlers only, Kopf still copies every object twice to compute a difference that no handler reads. At a
thousand objects that is a quarter of the time a start takes. With the part `stateless-kopf` off, Kopf does that again;
it writes nothing to the objects either way.
"""

from typing import Any

import kopf

from learnloop_operator.tuning.switches import SWITCHES


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


def without_storages(settings: kopf.OperatorSettings) -> None:
    """Kopf's settings with storages that store nothing; unchanged where the part is off."""
    if SWITCHES.is_on("stateless-kopf"):
        settings.persistence.diffbase_storage = NoDifferences()
        settings.persistence.progress_storage = NoProgress()
