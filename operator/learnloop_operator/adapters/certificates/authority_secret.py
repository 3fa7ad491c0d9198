"""The Secret of the authorities: what is in it, and how it changes."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from learnloop_api import names
from learnloop_api.tls.certificates import NotACertificate, Pair, fits, read
from learnloop_operator.core.certificates.leaves import Leaf
from learnloop_operator.core.certificates.rollover import Authority

AUTHORITIES_KEY = "authorities.json"
OBEYED_KEY = "rotated"
"""The last value of the annotation that was obeyed."""
ANNOTATION_ROTATE = f"{names.GROUP}/rotate"
"""On this Secret; any new value: make a new authority, whatever the age of the newest."""
CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True)
class HeldAuthority:
    """One authority, and the facts that decisions are made of."""

    pair: Pair
    facts: Authority


def held_authorities(secret: Mapping[str, Any]) -> list[HeldAuthority]:
    """Those that can be read; what somebody broke counts as absent, and a new one is made."""
    try:
        listed = json.loads(decoded(secret, AUTHORITIES_KEY) or "[]")
        return [_held(item) for item in listed]
    except (ValueError, KeyError, TypeError, NotACertificate):
        return []


def stored(authorities: list[HeldAuthority]) -> str:
    """What `held_authorities` reads."""
    return json.dumps(
        [
            {"certificate": one.pair.certificate, "key": one.pair.key, "announced": one.facts.announced.isoformat()}
            for one in authorities
        ]
    )


def hold(pair: Pair, announced: datetime) -> HeldAuthority:
    """A new authority."""
    facts = read(pair.certificate)
    return HeldAuthority(
        pair, Authority(key_id=facts.key_id, begins=facts.begins, ends=facts.ends, announced=announced)
    )


def leaf_of(secret: Mapping[str, Any]) -> Leaf | None:
    """The certificate in a part's Secret; None where there is none that can be read."""
    pair = Pair(decoded(secret, CERTIFICATE_KEY), decoded(secret, PRIVATE_KEY))
    try:
        facts = read(pair.certificate)
    except NotACertificate:
        return None
    return Leaf(begins=facts.begins, ends=facts.ends, names=facts.names, signer_id=facts.signer_id, fits=fits(pair))


def wish(secret: Mapping[str, Any]) -> str:
    """The value of the annotation that asks for a new authority, unless it was obeyed before."""
    asked = str((secret["metadata"].get("annotations") or {}).get(ANNOTATION_ROTATE, ""))
    return asked if asked != decoded(secret, OBEYED_KEY) else ""


def decoded(secret: Mapping[str, Any], key: str) -> str:
    """One entry; empty where there is none, or it is no text."""
    try:
        return base64.b64decode((secret.get("data") or {}).get(key, "")).decode()
    except ValueError:
        return ""


def patch(secret: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    """The JSON merge patch that sets `data`. With the resourceVersion: of two who write, one is refused."""
    return {
        "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def _held(item: Mapping[str, str]) -> HeldAuthority:
    return hold(Pair(item["certificate"], item["key"]), datetime.fromisoformat(item["announced"]).astimezone(UTC))
