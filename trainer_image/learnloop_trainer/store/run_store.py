"""What a run needs of its store."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.language import Preference
from learnloop_api.wire.training import Heartbeat, Manifest
from learnloop_api.wire.trajectory import EpisodeSelection, LoggedEpisode
from learnloop_trainer.errors import StoreRefused

MAX_ARTIFACT = 512 << 20
MAX_CHECKPOINT = 4 << 30


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The newest durable checkpoint."""

    body: bytes
    step: int
    sha256: str


class Store(Protocol):
    """One run's view of the store. Raises StoreUnavailable (worth a retry) or StoreRefused (not worth one)."""

    def heartbeat(self, beat: Heartbeat) -> None:
        """Replace the run's heartbeat. One quick attempt, no retries."""

    def put_checkpoint(self, body: bytes, step: int) -> str:
        """Make this the newest checkpoint; returns its SHA-256 once it is durable."""

    def checkpoint(self, back: int = 0) -> SavedCheckpoint | None:
        """The newest durable checkpoint, its digest checked; `back` 1: the one before it. StoreRefused: damaged."""

    def put_artifact(self, body: bytes) -> str:
        """Store an exported policy by its content; returns its URI once it is durable."""

    def artifact(self, uri: str) -> bytes:
        """The bytes behind the URI of an artifact in this store."""

    def put_manifest(self, manifest: Manifest) -> None:
        """Finish the run; returns once the manifest is durable."""

    def manifest(self) -> Manifest | None:
        """The manifest, when the run is already finished."""

    def observations(self, agent: str, limit: int) -> list[list[float]]:
        """Observations the agent really saw, newest first; an empty list when none are recorded."""

    def reward_policy(self, name: str, revision: str) -> RewardPolicySpec:
        """A published RewardPolicy; StoreRefused: there is no such revision."""

    def preferences(self, agent: str, limit: int) -> list[Preference]:
        """What people preferred of the agent's answers, newest first, at most `limit`."""

    def episodes(
        self, agent: str, selection: EpisodeSelection, limit: int, patience: float | None = None
    ) -> list[LoggedEpisode]:
        """The agent's logged episodes that meet the selection, newest first, until they hold `limit` steps.

        None is cut, none comes twice. `patience`: seconds that it may take for the store to answer; None: as ever.
        """


def digest(body: bytes) -> str:
    """SHA-256 in lower-case hex."""
    return hashlib.sha256(body).hexdigest()


def verified(body: bytes, sha256: str, what: str) -> bytes:
    """The body, if its digest is the expected one; raises StoreRefused if not."""
    if digest(body) != sha256:
        raise StoreRefused(f"{what}: SHA-256 is {digest(body)}, {sha256} was expected; the stored copy is damaged")
    return body
