"""`Idempotency-Key` on every POST that creates or changes something: the same request again has the same answer.

After draft-ietf-httpapi-idempotency-key-header. A key belongs to a caller in a namespace and is kept for a day
(`erasure.retention`). Only success is kept: a refused request may be corrected under the same key. A process that dies
frees its keys after `CLAIM_SECONDS`.
"""

import hashlib
import json
import re
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learnloop_dataplane.access.callers import Identity
from learnloop_dataplane.api.requests import data_plane, identify
from learnloop_dataplane.api.responses import refusal, unexpected
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy import keyed_digests

MAX_ANSWER = 1_048_576
# These only read. /training/start makes the TrainingJob's name of its key. /forget may be repeated, and its answer
# has texts, which must not outlive the memories.
WITHOUT = frozenset(
    {
        "/api/v1/memory/forget",
        "/api/v1/memory/retrieve",
        "/api/v1/rewards/bias",
        "/api/v1/rewards/dry-run",
        "/api/v1/training/start",
    }
)
PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same request with the same key is done once; its answer is kept for a day",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"},
}
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
HEADER = "idempotency-key"
CLAIM_SECONDS = 300.0
_CLAIM = """
INSERT INTO idempotency_keys AS k (namespace, key, digest) VALUES ($1, $2, $3)
ON CONFLICT (namespace, key) DO UPDATE SET claimed_at = now()
    WHERE k.digest = ANY($5::text[]) AND k.status IS NULL AND k.claimed_at < now() - make_interval(secs => $4)
RETURNING k.claimed_at
"""
_KNOWN = "SELECT digest, status, answer FROM idempotency_keys WHERE namespace = $1 AND key = $2"
# Only the claim's own row: another process may have taken over.
_KEEP = """
UPDATE idempotency_keys SET status = $4, answer = $5
WHERE namespace = $1 AND key = $2 AND claimed_at = $3 AND status IS NULL
"""
_RELEASE = "DELETE FROM idempotency_keys WHERE namespace = $1 AND key = $2 AND claimed_at = $3 AND status IS NULL"


class Idempotency:
    """ASGI middleware; requests without the header pass untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if not covers(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        key = request.headers.get(HEADER)
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._once(request, key)
        except ApiError as error:
            response = refusal(error)
        except Exception as error:
            response = unexpected(scope, error)
        await response(scope, receive, send)

    async def _once(self, request: Request, key: str) -> Response:
        if not _KEY.fullmatch(key):
            raise Invalid("1 to 128 letters, digits and ._:-, the first a letter or digit", field=HEADER, value=key)
        caller, body = await identify(request), await request.body()
        db, own = data_plane(request).shared.db, (caller.namespace, f"{_who(caller)}:{key}")
        since = await claim(db, *own, _content(request, body), key)
        if isinstance(since, Response):
            return since
        status, answer, headers = 500, b"", dict[str, str]()
        try:
            status, answer, headers = await _answered(self._app, request.scope, body)
        finally:
            async with db.tenant(caller.namespace) as connection:
                if 200 <= status < 300 and len(answer) <= MAX_ANSWER:
                    await connection.execute(_KEEP, *own, since, status, answer.decode())
                else:
                    await connection.execute(_RELEASE, *own, since)
        return Response(answer, status_code=status, headers=headers)


def covers(scope: Scope) -> bool:
    """True for a request that may carry a key."""
    return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] not in WITHOUT


def _content(request: Request, body: bytes) -> bytes:
    target = json.dumps([request.method, request.url.path, sorted(request.query_params.multi_items())])
    return target.encode() + b"\n" + body


async def _answered(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of the application's answer."""
    status, parts, headers = 500, list[bytes](), dict[str, str]()

    async def again() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def collect(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    await app(scope, again, collect)
    return status, b"".join(parts), headers


async def claim(db: Database, namespace: str, own: str, content: bytes, key: str) -> datetime | Response:
    """The time since which this request holds the key, or the answer that was kept.

    Args:
        own: the key with its caller: another caller's answer may hold what this one may not see.

    Raises:
        ApiError: 409, the key was used for another request, or the same request is under way.
        Unavailable: PostgreSQL does not answer.
    """
    digest = keyed_digests.digest("request", content)
    digests = [digest, *keyed_digests.valid("request", content)]
    async with db.tenant(namespace) as connection:
        since: datetime | None = await connection.fetchval(_CLAIM, namespace, own, digest, CLAIM_SECONDS, digests)
        if since is not None:
            return since
        row = await connection.fetchrow(_KNOWN, namespace, own)
    if row is not None and row["digest"] not in digests:
        raise ApiError(409, "this key came with another request; choose a new one", field=HEADER, value=key)
    if row is None or row["status"] is None:
        raise ApiError(409, "the same request is under way; send it again", field=HEADER, value=key, retry_after=2)
    replayed = {"idempotency-replayed": "true"}
    return Response(row["answer"], row["status"], headers=replayed, media_type="application/json")


def _who(caller: Identity) -> str:
    return hashlib.sha256(caller.subject.encode()).hexdigest()[:16]
