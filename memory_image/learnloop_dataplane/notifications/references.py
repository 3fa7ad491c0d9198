"""References to approvals: what somebody was asked, signed, for a time. A reference grants nothing.

Whoever follows one still decides under their own identity, with their own rights. It only keeps them from deciding
about something else than they were asked: another revision, another step, or a question of last month.
"""

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_dataplane.audit.signing import SuccessiveSigner, verifies

PURPOSE = "learnloop approval reference v1"
"""In each document: the same key signs other things, and none of them can be taken for another."""
LASTS = timedelta(days=7)
"""Of an approval that nobody sets a time for."""
LONGEST = 2048


class BadReference(ValueError):
    """It is none of ours, or too old; says which."""


class References:
    """Makes them with the key of the audit chain, and reads them again.

    Args:
        signer: by whichever of its keys a reference is, it is ours.
    """

    def __init__(self, signer: SuccessiveSigner) -> None:
        self._signer = signer

    def made(self, namespace: str, asked: AwaitedApproval) -> str:
        """The same for the same question, however often it is told."""
        document = {
            "purpose": PURPOSE,
            "namespace": namespace,
            "model_deployment": asked.model_deployment,
            "revision": asked.revision,
            "step": asked.step,
            "since": asked.since.astimezone(UTC).isoformat(),
            "expires": (asked.until or asked.since + LASTS).astimezone(UTC).isoformat(),
        }
        return f"{_text(orjson.dumps(document))}.{_text(self._signer.sign(document))}"

    def read(self, namespace: str, reference: str, now: datetime) -> dict[str, Any]:
        """What it is about: model_deployment, revision, step, since (when it was asked), expires.

        Raises:
            BadReference: forged, of another namespace, or expired.
        """
        body, _, mark = reference.partition(".")
        try:
            document, signature = orjson.loads(_bytes(body)), _bytes(mark)
        except (ValueError, binascii.Error):
            raise BadReference("it is no reference: copy all of it, with its dot") from None
        told = isinstance(document, dict) and document.get("purpose") == PURPOSE
        ours = any(verifies(key, document, signature) for key in self._signer.public_keys)
        if not told or not ours:
            raise BadReference("its signature is not ours: it was changed, or the key was since then")
        if document["namespace"] != namespace:
            raise BadReference(f"it is of another namespace than {namespace}: add -n with the right one")
        if datetime.fromisoformat(document["expires"]) < now:
            raise BadReference(f"it expired at {document['expires']}: look at the rollout as it is now")
        # One that was made before references had it says nothing of when.
        return {name: document.get(name) for name in ("model_deployment", "revision", "step", "since", "expires")}


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
