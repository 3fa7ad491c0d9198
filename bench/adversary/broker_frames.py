"""A tenant's connection to NATS sends frames from a grammar: other subjects, replies that would make the server
publish, headers that order it about, dedupe ids of others. No stream of the data plane may change by it."""

import asyncio
import json
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import nats

from bench.adversary.finding import Finding
from bench.adversary.rig import ATTACKER, VICTIM, Rig
from learnloop_api import names
from learnloop_dataplane.nats.connection import STREAMS
from testing.servers.tenants_nats import PASSWORD

VERBS = ("PURGE", "DELETE", "MSG.DELETE", "UPDATE", "RESTORE", "SNAPSHOT", "INFO")
HEADERS = (
    "Nats-Rollup: all",
    "Nats-TTL: 1s",
    "Nats-Expected-Stream: RL_REWARDS",
    "Nats-Schedule: @every 1s",
    "Nats-Msg-Id: blue/status/job/1/Running",
)
AT_A_TIME = 25
"""Frames of one connection: the server may hang up at one of them, and the others go unread."""


@dataclass
class Answers:
    """The server's answers to all connections: messages of the victim's, refusals, and answers after the last frame."""

    leaked: int = 0
    refusals: int = 0
    read_to_the_end: int = 0


def subject(rng: random.Random, tenant: str) -> str:
    """Somewhere a tenant has no business."""
    bases = (names.SUBJECT_TRAJECTORY, names.SUBJECT_REWARD, names.SUBJECT_TRAINING_STATUS)
    tails = ("walker", "job", "*", ">", "walker.more", "")
    stream = rng.choice(STREAMS)
    return rng.choice(
        [
            f"{rng.choice(bases)}.{tenant}.{rng.choice(tails)}".rstrip("."),
            f"$JS.API.STREAM.{rng.choice(VERBS)}.{stream}",
            f"$JS.API.CONSUMER.DELETE.{stream}.learnloop-store",
            f"$JS.ACK.{stream}.learnloop-store.1.1.1.1.0",
            f"{names.nats_inbox(tenant, 'default')}.x",
            rng.choice(["$SYS.REQ.USER.AUTH", "$SYS.REQ.SERVER.PING", "_INBOX.x", f"{names.SUBJECT_REWARD}.{tenant}"]),
        ]
    )


def frame(rng: random.Random) -> bytes:
    """One PUB, HPUB or SUB with its payload."""
    own = f"{names.SUBJECT_TRAJECTORY}.{ATTACKER}.walker"
    to = own if rng.random() < 0.5 else subject(rng, rng.choice((VICTIM, ATTACKER, "*")))
    if rng.random() < 0.1:
        return f"SUB {subject(rng, VICTIM)} {rng.randrange(1_000_000)}\r\n".encode()
    reply = f" {subject(rng, VICTIM)}" if rng.random() < 0.8 else ""
    body = rng.choice(
        [b"", b"{}", b'{"purge":true}', json.dumps({"seq": 1}).encode(), rng.randbytes(40).hex().encode()]
    )
    if rng.random() < 0.5:
        return f"PUB {to}{reply} {len(body)}\r\n".encode() + body + b"\r\n"
    head = ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in rng.sample(HEADERS, 2)) + "\r\n").encode()
    return f"HPUB {to}{reply} {len(head)} {len(head) + len(body)}\r\n".encode() + head + body + b"\r\n"


async def attack(rig: Rig, frames: int, seed: int) -> Finding:
    """So many frames; what the victim's and the data plane's streams held before and after."""
    owner = await nats.connect(rig.nats.url, user="learnloop", password=PASSWORD)
    js = owner.jetstream()
    for number in range(20):
        for prefix, name in ((names.SUBJECT_REWARD, "walker"), (names.SUBJECT_TRAINING_STATUS, "job")):
            await js.publish(f"{prefix}.{VICTIM}.{name}", b"{}", headers={"Nats-Msg-Id": f"{name}{number}"})
    before = await _held(js)
    rng, finding, sent, answers = random.Random(seed), Finding(), 0, Answers()
    while sent < frames:
        some = min(AT_A_TIME, frames - sent)
        await _session(rig, [frame(rng) for _ in range(some)], answers)
        sent += some
    finding.tried = sent
    after = await _held(js)
    for stream, (subjects, lost) in before.items():
        for name, count in subjects.items():
            now = after[stream][0].get(name, 0)
            if f".{VICTIM}." in name and now != count:
                finding.breaches.append(f"{stream} {name}: {count} messages before, {now} after")
        fresh = [name for name in after[stream][0].keys() - subjects.keys() if f".{VICTIM}." in name]
        finding.breaches += [f"{stream} has got {name}" for name in fresh]
        if after[stream][1] != lost:
            finding.breaches.append(f"{stream}: {after[stream][1] - lost} messages were deleted")
    if answers.leaked:
        finding.breaches.append(f"{answers.leaked} messages came to a subscription of somebody else's subject")
    if not answers.read_to_the_end:
        finding.breaches.append("no connection was read to its end: nothing was attacked")
    finding.figures = {
        "frames": sent,
        "connections_read_to_the_end": answers.read_to_the_end,
        "refusals": answers.refusals,
    }
    await owner.close()
    return finding


async def _held(js: Any) -> dict[str, tuple[dict[str, int], int]]:
    streams = {}
    for stream in STREAMS:
        if stream != "RL_TRAJECTORIES":  # what was read and refused leaves it by itself
            state = (await js.stream_info(stream, subjects_filter=">")).state
            streams[stream] = (dict(state.subjects or {}), state.num_deleted or 0)
    return streams


async def _session(rig: Rig, frames: list[bytes], answers: Answers) -> None:
    """One connection with a token sends them all. The server may hang up."""
    address = urlsplit(rig.nats.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    hello = {"verbose": False, "auth_token": rig.token(ATTACKER), "headers": True, "lang": "x", "version": "1"}
    try:
        writer.write(b"CONNECT " + json.dumps(hello).encode() + b"\r\n" + b"".join(frames) + b"PING\r\n")
        await writer.drain()
        async with asyncio.timeout(30):
            while line := await reader.readline():
                answers.leaked += line.startswith((b"MSG ", b"HMSG ")) and f".{VICTIM}.".encode() in line
                answers.refusals += line.startswith(b"-ERR")
                if line.startswith(b"PONG"):
                    answers.read_to_the_end += 1
                    break
    except (OSError, TimeoutError, ValueError):
        pass
    finally:
        writer.close()
