"""Subjects carry the namespace: rights are given by subject, so the token is to be believed and the body is not."""

import hashlib
import re
from typing import Literal

from pydantic import ValidationError

UNKNOWN = "-"
MAX_FIELD = 60
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


# subject: not <subject>.<namespace>.<name>; json: not JSON; schema: not what the event's schema says; agent: body and
# subject name different agents; storage: PostgreSQL refuses the values.
Code = Literal["subject", "json", "schema", "agent", "storage"]


class RefusedMessage(Exception):
    """A message that can never be stored, and why: a code to select by and a sentence to read."""

    def __init__(self, namespace: str, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.namespace = namespace
        self.code = code
        self.reason = reason[:1024]


def valid_namespace(namespace: str) -> bool:
    """Could a Kubernetes namespace be called this?"""
    return _NAMESPACE.fullmatch(namespace) is not None


def split_subject(subject: str, prefix: str) -> tuple[str, str]:
    """`<prefix>.<namespace>.<name>` → (namespace, name); a name may contain dots, a namespace may not.

    Raises:
        RefusedMessage: the subject does not look like that.
    """
    namespace, _, name = subject.removeprefix(prefix).removeprefix(".").partition(".")
    if not subject.startswith(prefix) or not valid_namespace(namespace) or not _NAME.fullmatch(name):
        raise RefusedMessage(
            namespace if valid_namespace(namespace) else UNKNOWN,
            "subject",
            f"subject {subject!r} is not {prefix}.<namespace>.<name>; publish there",
        )
    return namespace, name


def tenants_id(namespace: str, subject: str, identity: str) -> str:
    """The message id of what a tenant sends, by NATS or by HTTP.

    A stream takes one id once. No tenant can choose an id that the data plane uses, or another tenant: those of tenants
    begin with `tenant/` and the namespace, and end in a hash.
    """
    digest = hashlib.sha256(f"{subject} {identity}".encode(errors="replace")).hexdigest()  # no subject has a space
    return f"tenant/{namespace}/{digest}"


_FIXES = {
    "missing": "add it",
    "extra_forbidden": "remove it: the schema has no such field",
    "json_invalid": "send one JSON object (RFC 8259)",
}


def invalid(namespace: str, subject: str, error: ValidationError) -> RefusedMessage:
    """The refusal of a body: the first faulty field, without its value, which may be private.

    Args:
        subject: the event's, without namespace and name; its schema is served under this name.
    """
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    first = errors[0]
    # pydantic puts the types that it tried of a field among the fields, such as list[float].
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    field = ".".join(part[:MAX_FIELD] for part in path) or "body"
    fix = _FIXES.get(first["type"], "correct it")
    more = f" ({len(errors) - 1} more after this one)" if len(errors) > 1 else ""
    message = f"{field}: {first['msg'].removeprefix('Value error, ')}; {fix} and publish it under a new Nats-Msg-Id"
    code: Code = "json" if first["type"] == "json_invalid" else "schema"
    return RefusedMessage(namespace, code, f"{message}; schema: /api/v1/schemas/{subject}{more}")
