"""Secrets and personal data made up at random, in the places where agents come by them. Nothing here is anybody's."""

import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from learnloop_api.redaction_checks import IBAN_LENGTHS, luhn

_ALNUM = string.ascii_letters + string.digits
TALK = "the agent went to a page and read that all was well before it wrote its answer down again"
NAMES = ("password", "api_key", "passwd", "client_secret", "token", "db_password", "Api-Key", "passphrase")
WORDS = TALK.split(" ")


@dataclass(frozen=True)
class Planted:
    """Something that must not be found again.

    Attributes:
        kind: which maker it is from.
        cores: none of these may occur in what is kept.
        value: text or JSON value it stands in.
    """

    kind: str
    cores: tuple[str, ...]
    value: Any


def _some(rng: random.Random, count: int, alphabet: str = _ALNUM) -> str:
    return "".join(rng.choices(alphabet, k=count))


def _password(rng: random.Random) -> str:
    return _some(rng, 1, string.ascii_letters) + _some(rng, rng.randrange(8, 20), _ALNUM + "!$%*+-_.~^") + "9"


def _card(rng: random.Random) -> str:
    body = rng.choice("3456") + _some(rng, rng.choice((13, 14, 14, 14)), string.digits)
    return next(body + digit for digit in string.digits if luhn(body + digit))


def _iban(rng: random.Random) -> str:
    country = rng.choice(sorted(IBAN_LENGTHS))
    account = _some(rng, IBAN_LENGTHS[country] - 4, string.digits)
    number = int("".join(str(int(c, 36)) for c in f"{account}{country}00"))
    return f"{country}{98 - number % 97:02d}{account}"


def _grouped(rng: random.Random, compact: str) -> str:
    separator = rng.choice(("", " ", "-"))
    return separator.join(compact[i : i + 4] for i in range(0, len(compact), 4))


def _email(rng: random.Random) -> str:
    return f"{_some(rng, 9)}{rng.choice(('', '+tag', '.x'))}@{_some(rng, 6, string.ascii_lowercase)}.example.org"


def _pem(rng: random.Random) -> tuple[str, str]:
    core = _some(rng, 64)
    head = rng.choice(("", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n"))
    kind = rng.choice(("", "RSA ", "EC ", "OPENSSH "))
    return core, f"-----BEGIN {kind}PRIVATE KEY-----\n{head}{core}\n-----END {kind}PRIVATE KEY-----"


def _token(rng: random.Random) -> str:
    made = {
        "openai": lambda: f"sk-proj-{_some(rng, 40)}1",
        "stripe": lambda: f"sk_live_{_some(rng, 24)}1",
        "aws": lambda: f"AKIA{_some(rng, 16, string.ascii_uppercase + string.digits)}",
        "github": lambda: f"gh{rng.choice('pousr')}_{_some(rng, 36)}",
        "gitlab": lambda: f"glpat-{_some(rng, 20)}",
        "slack": lambda: f"xoxb-{_some(rng, 12, string.digits)}-{_some(rng, 24)}",
        "google": lambda: f"AIza{_some(rng, 35)}",
        "hugging": lambda: f"hf_{_some(rng, 34)}",
        "jwt": lambda: f"eyJ{_some(rng, 20)}.eyJ{_some(rng, 40)}.{_some(rng, 43)}",
    }
    return rng.choice(list(made.values()))()


def _make(rng: random.Random) -> tuple[str, tuple[str, ...], Any]:
    kind = rng.choice(("token", "password", "named", "url", "email", "card", "iban", "pem", "bearer"))
    if kind == "pem":
        core, text = _pem(rng)
        return kind, (core,), text
    if kind in ("card", "iban"):
        compact = _card(rng) if kind == "card" else _iban(rng)
        shown = _grouped(rng, compact)
        return kind, (compact, shown), shown
    core = {"token": _token, "email": _email}.get(kind, _password)(rng)
    name = rng.choice(
        ("password", "api_key", "passwd", "client_secret", "token", "db_password", "Api-Key", "passphrase")
    )
    form: dict[str, Callable[[], Any]] = {
        "password": lambda: rng.choice(
            (f"{name}={core}", f"{name}: '{core}'", json.dumps({name: core}), f"{name} = {core}")
        ),
        "named": lambda: {rng.choice(("login", "config")): {name: core}},
        "url": lambda: f"postgres://{_some(rng, 5)}:{core.replace('/', 'x')}@db.example.org/app",
        "bearer": lambda: f"Authorization: Bearer {_some(rng, 24)}{core.translate(str.maketrans('', '', '!$%*^'))}",
    }
    value = form.get(kind, lambda: core)()
    return kind, (core,) if kind != "bearer" else (value.rsplit(" ", 1)[1],), value


def planted(rng: random.Random) -> Planted:
    """One, in the middle of ordinary words, on its own, or deep in a document."""
    kind, cores, value = _make(rng)
    if isinstance(value, str) and rng.random() < 0.8:
        before, after = (" ".join(rng.choices(WORDS, k=rng.randrange(6))) for _ in range(2))
        value = f"{before} {value}{rng.choice((' ', '. ', ', ', chr(10)))}{after}"
    for _ in range(rng.randrange(4)):
        value = rng.choice(([value], {"text": value, "step": 3}, {"page": ["a", value]}))
    return Planted(kind, cores, value)
