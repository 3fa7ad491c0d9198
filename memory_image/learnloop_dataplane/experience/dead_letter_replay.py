"""Publishes dead letters again, under the subject they were meant for: after a fix, or to see what lies there."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from learnloop_api import names
from learnloop_dataplane.experience import dead_letters
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.streams import DEAD_LETTERS
from learnloop_dataplane.privacy.pseudonyms import METADATA_KEY

BATCH = 64
IDLE_SECONDS = 60.0


@dataclass(frozen=True)
class Selection:
    """Which letters; None means any.

    Attributes:
        code: one of `subjects.CODES`.
        reason: part of the reason, any case.
        limit: at most so many, oldest first.
    """

    namespace: str | None = None
    code: str | None = None
    reason: str | None = None
    limit: int | None = None

    def takes(self, headers: dict[str, str]) -> bool:
        """Does a letter with these headers match?"""
        if self.code is not None and headers.get(dead_letters.CODE) != self.code:
            return False
        return self.reason is None or self.reason.lower() in headers.get(dead_letters.REASON, "").lower()


@dataclass
class ReplayReport:
    """What was found and done. A letter that was cut cannot be replayed; it stays."""

    matched: int = 0
    replayed: int = 0
    cut: int = 0
    codes: Counter[str] = field(default_factory=Counter)


async def replay(
    bus: Bus, selection: Selection, *, dry_run: bool, show: Callable[[dict[str, Any]], None]
) -> ReplayReport:
    """Publishes every matching letter that lies there now and deletes it once its stream has it again.

    Killed in between, the letter is still there; replayed again within two hours, the stream takes it for the
    duplicate it is, and after that the trajectory's own id does.

    Args:
        show: called for each matching letter with its sequence, headers and size.

    Raises:
        Unavailable: what was not replayed is still there.
    """
    report = ReplayReport()
    last = (await bus.js.stream_info(DEAD_LETTERS)).state.last_seq
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=IDLE_SECONDS
    )
    subject = f"{names.SUBJECT_DEAD_LETTER}.{selection.namespace or '*'}.>"
    reader = await bus.js.pull_subscribe(subject, stream=DEAD_LETTERS, config=config)
    try:
        while True:
            try:
                letters = await reader.fetch(BATCH, timeout=1)
            except TimeoutError:  # of nats-py, or asyncio's own, which nats-py lets through
                return report
            for letter in letters:
                if letter.metadata.sequence.stream > last or report.matched == selection.limit:
                    return report
                if selection.takes(letter.headers or {}):
                    await _one(bus, letter, report, dry_run, show)
    finally:
        await reader.unsubscribe()


async def _one(
    bus: Bus, letter: Msg, report: ReplayReport, dry_run: bool, show: Callable[[dict[str, Any]], None]
) -> None:
    headers, sequence = letter.headers or {}, letter.metadata.sequence.stream
    report.matched += 1
    report.codes[headers.get(dead_letters.CODE, "")] += 1
    found = {"sequence": sequence, "subject": letter.subject, "bytes": len(letter.data)}
    show(found | {key: value for key, value in headers.items() if key.startswith("Learnloop-")})
    if dead_letters.CUT in headers:
        report.cut += 1
    elif not dry_run:
        identity = f"replay/{sequence}/{letter.metadata.timestamp.timestamp()}"
        await bus.publish(headers[dead_letters.SUBJECT], _whole(letter), identity)
        await bus.js.delete_msg(DEAD_LETTERS, sequence)
        report.replayed += 1


def _whole(letter: Msg) -> bytes:
    """The body, with the person it belongs to by pseudonym: a replay must not lose whose it is."""
    user = (letter.headers or {}).get(dead_letters.USER)
    if user is None:
        return letter.data
    body = orjson.loads(letter.data)
    return orjson.dumps(body | {"metadata": {**(body.get("metadata") or {}), METADATA_KEY: user}})
