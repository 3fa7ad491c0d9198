"""Everyday texts of agents that no redaction may touch: ids, hashes, numbers, sentences about secrets."""

import base64
import random
import uuid
from collections.abc import Callable

# A long number that passes the check of a card and begins like one cannot be told from a card; a tenth of them do.
UNDECIDABLE = "number of 16 digits"
_SENTENCES = (
    "the request used tokens: 1523 of max_tokens=4096",
    '{"prompt_tokens": 812, "completion_tokens": 33, "total_tokens": 845}',
    "a basic understanding of the bearer is enough",
    "api_key=None and password: null were passed on",
    "pip install sk-learn-contrib-extra-pkg",
    "token per second 5, passed 3 tests",
    "the token is invalid, the secret was rotated 3 days ago and the api key is read from the vault",
    "a password is required; the password was changed",
    "the secret is base64-encoded and the access key is 32-byte",
    "he said: 'the key is to begin early' and `secret` was \"kept\"",
    "pypi-mirror and glusterfs-client-xlators are packages; a bare @ and a:b@ stay",
    "see https://example.org:8443/a?b=c and redis://cache:6379/0",
)


def _hex(rng: random.Random, count: int) -> str:
    return f"{rng.getrandbits(4 * count):0{count}x}"


def _point(rng: random.Random) -> str:
    return f"{rng.randrange(10**4)}.{rng.randrange(10**4):04d}"


def _row(rng: random.Random) -> str:
    return " ".join(str(rng.randrange(1000)) for _ in range(rng.randrange(5, 12)))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "UUID": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "UUID without hyphens": lambda rng: _hex(rng, 32),
    "SHA-1": lambda rng: _hex(rng, 40),
    "SHA-256": lambda rng: _hex(rng, 64),
    "pseudonym": lambda rng: f"user:{_hex(rng, 32)}",
    "row of numbers": _row,
    "row of points": lambda rng: " ".join(_point(rng) for _ in range(rng.randrange(2, 9))),
    "decimal fraction": lambda rng: f"{rng.randrange(10**8)}.{rng.randrange(10**8, 10**9)}",
    "loopback address": lambda rng: f"127.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
    "clock and ratio": lambda rng: f"{rng.randrange(24)}:{rng.randrange(60):02d}:05 at {rng.randrange(9)}:1",
    "sum of numbers": lambda rng: f"{rng.randrange(999)}-{rng.randrange(99)}-7+{rng.randrange(10**5)}",
    "picture in Base64": lambda rng: base64.b64encode(rng.randbytes(rng.randrange(30, 90))).decode(),
    "text in Base64": lambda rng: base64.b64encode(rng.choice(_SENTENCES).encode()).decode(),
    "words of two scripts": lambda rng: "".join(rng.choices("привет как дела мир", k=30)) + " kHz",
    "list of short words": lambda rng: "/".join(rng.choices(("go", "left", "right", "up"), k=5)),
    "version": lambda rng: f"{rng.randrange(9)}.{rng.randrange(40)}.{rng.randrange(10**4)}.{rng.randrange(10**8)}",
    "date and time": lambda rng: f"{rng.randrange(2020, 2030)}.{rng.randrange(10, 13)}.21 10.15.{rng.randrange(10**6)}",
    "measurement": lambda rng: repr(rng.random() * 10 ** rng.randrange(-3, 7)),
    "milliseconds": lambda rng: str(rng.randrange(1_500_000_000_000, 1_900_000_000_000)),
    "nanoseconds": lambda rng: str(rng.randrange(15 * 10**17, 19 * 10**17)),
    "sentence": lambda rng: rng.choice(_SENTENCES),
    UNDECIDABLE: lambda rng: str(rng.randrange(10**15, 10**16)),
}
