"""Secrets and personal data made up at random, in the places where agents come by them. Nothing here is anybody's."""

import base64
import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from learnloop_common.redaction.rules import IBAN_LENGTHS, SEPARATORS, luhn

_ALNUM = string.ascii_letters + string.digits
_SCRIPTS = "aeinrtäöüßéñøžжщλ中日한"
TALK = "the agent went to a page and read that all was well before it wrote its answer down again"
NAMES = (
    *("password", "api_key", "passwd", "client_secret", "token", "db_password", "Api-Key", "passphrase"),
    *("accessToken", "SECRET_KEY", "api key", "AWS_SECRET_ACCESS_KEY"),
)
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
    separator: str = rng.choice(("", *SEPARATORS))
    return separator.join(compact[i : i + 4] for i in range(0, len(compact), 4))


def _email(rng: random.Random) -> str:
    letters = rng.choice((string.ascii_lowercase, _SCRIPTS))
    local = _some(rng, 9, rng.choice((_ALNUM, letters)))
    at = rng.choice(("@", "@", "%40"))
    return f"{local}{rng.choice(('', '+tag', '.x'))}{at}{_some(rng, 6, letters)}.example.org"


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
        "slack": lambda: f"xox{rng.choice('bps')}-{_some(rng, 12, string.digits)}-{_some(rng, 24)}",
        "slack app": lambda: (
            f"xapp-1-{_some(rng, 11, string.ascii_uppercase)}-{_some(rng, 64, string.hexdigits.lower())}"
        ),
        "google": lambda: f"AIza{_some(rng, 35)}",
        "google oauth": lambda: f"ya29.{_some(rng, 60)}-{_some(rng, 40)}",
        "anthropic": lambda: f"sk-ant-api03-{_some(rng, 90)}",
        "aws session": lambda: f"ASIA{_some(rng, 16, string.ascii_uppercase + string.digits)}",
        "github fine": lambda: f"github_pat_{_some(rng, 22)}_{_some(rng, 59)}",
        "sendgrid": lambda: f"SG.{_some(rng, 22)}.{_some(rng, 43)}",
        "pypi": lambda: f"pypi-AgEIcHlwaS5vcmc{_some(rng, 100)}",
        "npm": lambda: f"npm_{_some(rng, 36)}",
        "digitalocean": lambda: f"dop_v1_{_some(rng, 64, '0123456789abcdef')}",
        "hugging": lambda: f"hf_{_some(rng, 34)}",
        "jwt": lambda: f"eyJ{_some(rng, 20)}.eyJ{_some(rng, 40)}.{_some(rng, 43)}",
    }
    return rng.choice(list(made.values()))()


def _named(rng: random.Random, name: str, core: str) -> str:
    """A secret with its name, as it stands in settings, in code, and in what people write."""
    forms = (
        f"{name}={core}",
        f"{name}: '{core}'",
        json.dumps({name: core}),
        f"{name} = {core}",
        f"my {name} {rng.choice(('is', 'was', 'is:'))} {core}",
        f"**{name}:** `{core}`",
    )
    return rng.choice(forms)


def _phrase(rng: random.Random, name: str, words: tuple[str, ...]) -> str:
    """A secret of several words: only its quotes say where it ends."""
    text = " ".join(words)
    forms = (
        f'{name} = "{text}"',
        f"{name}: '{text}'",
        repr({name: text}),
        json.dumps(json.dumps({"a": 1, name: text, "b": 2})),
        f'the {name} is "{text}"',
    )
    return rng.choice(forms)


PLAIN = ("token", "password", "phrase", "named", "url", "email", "card", "iban", "pem", "bearer")
DISGUISED = ("full-width", "zero-width", "base64", "pieces", "phone", "ip", "ssn")
_WIDE = {ord(sign): ord(sign) + 0xFEE0 for sign in string.ascii_letters + string.digits}


def disguised(rng: random.Random, kind: str) -> tuple[tuple[str, ...], Any]:
    """Cores and value of what is written so that a plain pattern misses it, and of what has no check digit."""
    card = _card(rng)
    if kind == "full-width":
        shown = card.translate(_WIDE)
        return (card, shown), shown
    if kind == "zero-width":
        secret = rng.choice((card, _token(rng)))
        unseen = rng.choice("\u200b\u200c\u200d\u2060\ufeff\u00ad")
        shown = "".join(sign + (unseen if index % 3 == 2 else "") for index, sign in enumerate(secret))
        return (secret, shown), shown
    if kind == "base64":
        shown = base64.b64encode(f"password={_password(rng)} of the database".encode()).decode()
        return (shown, shown[8:32]), shown
    if kind == "pieces":
        pieces = [card[at : at + 4] for at in range(0, len(card), 4)]
        return (json.dumps(pieces)[1:-1],), pieces
    if kind == "phone":
        local = f"{rng.randrange(200, 999)}-{rng.randrange(200, 999)}-{rng.randrange(10**4):04d}"
        shown = rng.choice((f"+{rng.randrange(1, 99)} {rng.randrange(10, 999)} {rng.randrange(10**5, 10**8)}", local))
        return (shown,), shown
    if kind == "ip":
        shown = rng.choice((".".join(str(rng.randrange(128, 224)) for _ in range(4)), _ipv6(rng)))
        return (shown,), shown
    shown = f"{rng.randrange(100, 600)}-{rng.randrange(10, 99)}-{rng.randrange(1000, 9999)}"
    return (shown,), shown


def _ipv6(rng: random.Random) -> str:
    return "2a02:" + ":".join(f"{rng.randrange(1, 65_536):x}" for _ in range(7))


def _make(rng: random.Random) -> tuple[str, tuple[str, ...], Any]:
    kind = rng.choice((*PLAIN, *DISGUISED))
    if kind in DISGUISED:
        return kind, *disguised(rng, kind)
    if kind == "pem":
        core, text = _pem(rng)
        return kind, (core,), text
    if kind in ("card", "iban"):
        compact = _card(rng) if kind == "card" else _iban(rng)
        shown = _grouped(rng, compact)
        return kind, (compact, shown), shown
    name = rng.choice(NAMES)
    if kind == "phrase":
        words = tuple(_some(rng, rng.randrange(5, 9)) for _ in range(rng.randrange(2, 6)))
        return kind, words, _phrase(rng, name, words)
    core = {"token": _token, "email": _email}.get(kind, _password)(rng)
    form: dict[str, Callable[[], Any]] = {
        "password": lambda: _named(rng, name, core),
        "named": lambda: {rng.choice(("login", "config")): {name: core}},
        "url": lambda: f"postgres://{rng.choice((_some(rng, 5), ''))}:{core}@db.example.org/app",
        "bearer": lambda: (
            f"Authorization: {rng.choice(('Bearer', 'Basic'))} "
            f"{_some(rng, 24)}{core.translate(str.maketrans('', '', '!$%*^'))}"
        ),
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
