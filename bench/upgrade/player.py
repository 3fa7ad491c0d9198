"""Agents of one version's SDK: `python player.py SETTINGS`, by its path, so that no other version's code is with it.

SETTINGS is JSON: name, data, and policy (addresses), namespace, token (file), weights (SHA-256), folder. Each
agent plays episodes by the policy servers, records them, recalls, remembers, and reads weights, until the file `over`
is in the folder; then everything is delivered. What they took charge of is in `episodes` and `memories`, a number a
line, and each answer that they should have had and had not in `refusals`.
"""

import asyncio
import hashlib
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import httpx

from learnloop_sdk import Learnloop
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.recording import post_outbox

AGENTS = 3
FOR_EACH_CONNECTION = 5
"""Episodes by one Learnloop: agents that come and go, so that each server gets connections."""
PAUSE_SECONDS = 0.1
DELIVERY_TRIES = 600
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
PATIENCE_SECONDS = 30.0
"""Instead of the two seconds of a recall: a busy machine is no refusal. How long answers took is told apart."""


class Notes(logging.Handler):
    """What the agents took charge of, and what was refused. `said`: the SDK's last warning."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(logging.WARNING)
        self.said = ""
        self.settings = settings
        self.folder = Path(settings["folder"])
        self._files = {name: self._open(name) for name in ("episodes", "memories", "seconds", "refusals")}

    def _open(self, name: str) -> TextIO:
        return (self.folder / name).open("a", buffering=1)

    def emit(self, record: logging.LogRecord) -> None:
        """logging.Handler"""
        self.said = record.getMessage()

    @property
    def over(self) -> bool:
        """Whether to deliver and end."""
        return (self.folder / "over").exists()

    def write(self, name: str, line: object) -> None:
        """One line."""
        self._files[name].write(" ".join(str(line).split()) + "\n")


async def play(notes: Notes, agent: int) -> None:
    """One agent's life."""
    number = agent
    while not notes.over:
        async with learnloop(notes.settings, agent) as loop:
            for _ in range(FOR_EACH_CONNECTION):
                identity = f"{notes.settings['name']}-{number}"
                number += AGENTS
                try:
                    await once(loop, identity, notes)
                except LearnloopError as error:
                    notes.write("refusals", f"episode {identity}: {type(error).__name__}: {error}")
                await read_weights(notes)
                await asyncio.sleep(PAUSE_SECONDS)
            if lost := loop.counters.trajectories_rejected + loop.counters.trajectories_dropped:
                notes.write("refusals", f"{lost} episodes of agent {agent} were rejected or dropped")
    async with learnloop(notes.settings, agent) as loop:
        for _ in range(DELIVERY_TRIES):
            if not await loop.flush(2) and not loop.memory.waiting:
                return
            await asyncio.sleep(PAUSE_SECONDS)
    raise SystemExit(f"agent {agent} could not deliver everything")


def learnloop(settings: dict[str, Any], agent: int) -> Learnloop:
    """The agent's, with what an earlier one of it left on disk."""
    return Learnloop(
        f"{settings['name']}-{agent}",
        settings["policy"],
        data_url=settings["data"],
        namespace=settings["namespace"],
        token_file=Path(settings["token"]),
        timeout=PATIENCE_SECONDS,
        retry_seconds=PATIENCE_SECONDS,
        spool_directory=Path(settings["folder"]) / f"spool-{agent}",
    )


async def once(loop: Learnloop, identity: str, notes: Notes) -> None:
    """An episode with a recall at its beginning and a memory at its end."""
    async with loop.episode("upgrade", metadata={"number": identity}) as episode:
        began = time.monotonic()
        found = await episode.recall({"task": f"fact {identity}"})
        notes.write("seconds", f"{time.monotonic() - began:.3f}")
        if "unavailable" in found.degraded:
            notes.write("refusals", f"recall {identity}: {notes.said}")
        for step in range(3):
            await episode.act([0.0, 1.0, 0.0, float(step)])
            episode.record(reward=1.0, terminated=step == 2)
        episode.outcome(True)
    notes.write("episodes", identity)
    kept = loop.counters.posts_kept
    stored = await loop.memory.store({"number": identity, "text": f"fact {identity} was learned"})
    if not stored and loop.counters.posts_kept == kept:
        notes.write("refusals", f"memory {identity}: {notes.said}")
        return
    notes.write("memories", identity)


async def read_weights(notes: Notes) -> None:
    """As a policy server does, by a connection of its own, and again where the network is in the way."""
    settings = notes.settings
    headers = {"authorization": f"Bearer {Path(settings['token']).read_text().strip()}"}
    address = f"{settings['data']}/api/v1/artifacts/{settings['weights']}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            async with httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False) as client:
                answer = await client.get(address, headers=headers)
            said = f"HTTP {answer.status_code}: {answer.text[:200]!r}"
            if answer.status_code == 200 and hashlib.sha256(answer.content).hexdigest() == settings["weights"]:
                return
            if answer.status_code not in TRANSIENT:
                break
        except httpx.TransportError as error:
            said = f"{type(error).__name__}: {error}"
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(PAUSE_SECONDS)
    notes.write("refusals", f"weights: {said}")


async def main(settings: dict[str, Any]) -> None:
    """Returns when everything is delivered."""
    post_outbox.TIMEOUT = PATIENCE_SECONDS
    notes = Notes(settings)
    logging.getLogger().addHandler(notes)
    async with asyncio.TaskGroup() as group:
        for agent in range(AGENTS):
            group.create_task(play(notes, agent))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(json.loads(sys.argv[1])))
