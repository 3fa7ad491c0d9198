"""The key that the servers of a ModelDeployment share, and the episode ids that it signs."""

import asyncio
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from learnloop_api.wire.routing import agent_tag
from learnloop_common import cluster_clock, key_rotation

log = logging.getLogger(__name__)
LEAST_BYTES = 32
MARK_DIGITS = 32
POLL_SECONDS = 5.0
"""The kubelet takes up to a minute to mount a Secret's new content."""


class Seal:
    """The keys in force, and those before them: pods read new ones at different times."""

    def __init__(self, text: bytes | None = None) -> None:
        """`text`: a key on each line; None: a random key that no other process has."""
        self._lines = _lines(text or secrets.token_hex(LEAST_BYTES).encode())
        self._before: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path | None) -> "Seal":
        """The keys in the file `path`; raises ValueError with its fault. None: a random key."""
        return cls(_read(path) if path is not None else None)

    def renew(self, text: bytes) -> None:
        """Mark with the newest of these keys that is in use; marks of earlier keys still hold."""
        lines = _lines(text)
        if lines != self._lines:
            self._lines, self._before = lines, tuple(key for key in self._lines.values if key not in lines.values)

    def mark(self, purpose: bytes, message: bytes) -> str:
        """32 hexadecimal digits that only holders of the key can compute for `message` and this purpose."""
        return _mark(self._lines.current(), purpose, message)

    def holds(self, purpose: bytes, message: bytes, mark: str) -> bool:
        """Did a holder of the key compute this mark of `message`?"""
        given = mark.encode("utf-8", "replace")
        keys = (*self._lines.values, *self._before)
        return any(hmac.compare_digest(_mark(key, purpose, message).encode(), given) for key in keys)


def _mark(key: str, purpose: bytes, message: bytes) -> str:
    return hmac.digest(key.encode(), b"%b\0%b" % (purpose, message), "sha256").hex()[:MARK_DIGITS]


def _lines(content: bytes) -> key_rotation.KeyLines:
    """The keys, one on each line, newest first.

    Raises:
        ValueError: not text, too many lines, or a key is too short.
    """
    try:
        lines = key_rotation.KeyLines.parse(content.decode("ascii"))
    except UnicodeDecodeError:
        raise ValueError("is not text: write the key as hexadecimal digits") from None
    shortest = min(map(len, lines.values))
    if shortest < LEAST_BYTES:
        raise ValueError(f"has a key of {shortest} characters: must be {LEAST_BYTES} random ones or more")
    return lines


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        _lines(content)
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None
    return content


async def follow_key(path: Path, seal: Seal) -> None:
    """Follow the file until cancelled; while it is missing or invalid, the last key stays in force."""
    text = ""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        try:
            seal.renew(_read(path))
            text = ""
        except ValueError as error:
            if str(error) != text:
                text = str(error)
                log.error("the key of the episodes: %s; the last one stays in force", text)


PURPOSE = b"episode"
_SEALED = re.compile(
    rf"(([0-9a-f]{{8}})\.t([0-9a-f]{{8}})\.r[0-9a-f]{{16}}([0-9a-f]{{8}}))\.m([0-9a-f]{{{MARK_DIGITS}}})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Opening:
    """Content of an episode's id: the arm that owns it, when it was opened (Unix, seconds) and its agent's tag."""

    episode_id: str
    revision: str = ""
    at: int = 0
    tag: str = ""


class EpisodeIds:
    """Makes and reads the ids of one ModelDeployment."""

    def __init__(self, model_deployment: str, seal: Seal, clock: cluster_clock.ClusterClock | None = None) -> None:
        self._clock = clock or cluster_clock.ClusterClock()
        self._purpose = b"%b\0%b" % (PURPOSE, model_deployment.encode())
        self._seal = seal

    def make(self, revision: str, agent: str | None = None) -> str:
        """A new id for an episode of `agent` that belongs to the arm `revision`."""
        text = f"{revision}.t{int(self._clock.now()):08x}.r{secrets.token_hex(8)}{agent_tag(agent)}"
        return f"{text}.m{self._seal.mark(self._purpose, text.encode())}"

    def again(self, episode_id: str) -> str:
        """The id of the same episode among these ids; `episode_id` has another purpose's mark."""
        message = episode_id.rpartition(".m")[0]
        return f"{message}.m{self._seal.mark(self._purpose, message.encode())}"

    def read(self, episode_id: str) -> Opening | None:
        """Read an id; None if no server of this ModelDeployment issued it."""
        result = _SEALED.fullmatch(episode_id)
        if result is None:
            return None
        message, revision, at, tag, mark = result.groups()
        if not self._seal.holds(self._purpose, message.encode(), mark):
            return None
        return Opening(episode_id, revision, int(at, 16), tag)
