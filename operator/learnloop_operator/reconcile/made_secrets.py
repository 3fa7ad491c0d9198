"""Which Secrets are there, as far as this process has lately tried: it may make them, and read none."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from learnloop_operator.core.plan import Manifest

FORGET_SECONDS = 60.0
"""A Secret that somebody deleted is made again after this time at the latest."""
MOST = 10_000

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class MadeSecrets:
    """Spares the API server the same refused creation in every pass."""

    clock: Callable[[], float] = time.monotonic
    _since: dict[Key, float] = field(default_factory=dict)

    def lately(self, manifest: Manifest) -> bool:
        """Whether it was made, or was there already, within the last minute."""
        since = self._since.get(_key(manifest))
        return since is not None and self.clock() - since < FORGET_SECONDS

    def note(self, manifest: Manifest) -> None:
        """It is there now."""
        key = _key(manifest)
        self._since.pop(key, None)
        self._since[key] = self.clock()
        while len(self._since) > MOST:
            del self._since[next(iter(self._since))]


def _key(manifest: Manifest) -> Key:
    """With its owner: the Secret of an object that was deleted goes with it, and its namesake needs one of its own."""
    metadata = manifest["metadata"]
    owner = next((item["uid"] for item in metadata.get("ownerReferences", ())), "")
    return metadata.get("namespace", ""), metadata["name"], owner
