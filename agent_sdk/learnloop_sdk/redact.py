"""Obvious secrets leave a trajectory before it leaves the process. The data plane redacts again.

Only text is looked at: numbers, identifiers and timestamps pass. This is a net for the obvious, not a classifier:
give `Learnloop(redactor=…)` a better one where agents handle personal data.
"""

import re
from collections.abc import Callable
from typing import Any

Redactor = Callable[[str], str]
MASK = "[redacted]"
_SECRET_KEYS = re.compile(
    r"(?i)(^|[_.-])(pass(word|wd|phrase)?|secret|token|api[_-]?key|authorization|cookie|credential|private[_-]?key)s?$"
)
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),  # JSON Web Token
    re.compile(r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}"),
    re.compile(r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}\b"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,})"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[\w-]{30,}"),
    re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"),
    re.compile(r"://[^/\s:@]{1,128}:[^/\s@]{1,256}(?=@)"),
)
_ASSIGNED = re.compile(
    r"(?i)\b((?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|client[_-]?secret)[\"']?\s*[:=]\s*[\"']?)"
    r"([^\s\"',;&]{4,})"
)


def redact_text(text: str) -> str:
    """`text` with keys, tokens, e-mail addresses and assigned passwords replaced by `[redacted]`."""
    for pattern in _PATTERNS:
        text = pattern.sub(MASK, text)
    return _ASSIGNED.sub(rf"\1{MASK}", text)


def redact_value(value: Any, redactor: Redactor) -> Any:
    """`value` with `redactor` applied to every string; what stands under a key such as `password` is masked whole."""
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, dict):
        return {
            key: MASK if _SECRET_KEYS.search(key) and item is not None else redact_value(item, redactor)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redact_value(item, redactor) for item in value]
    return value


def redact_trajectory(trajectory: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """A wire.Trajectory as plain data, its free text redacted. Numeric observations cost nothing."""
    steps = [
        step
        if isinstance(step["observation"], list) and isinstance(step["action"], (int, list))
        else step
        | {"observation": redact_value(step["observation"], redactor), "action": redact_value(step["action"], redactor)}
        for step in trajectory["steps"]
    ]
    return trajectory | {
        "task": redactor(trajectory["task"]),
        "metadata": redact_value(trajectory["metadata"], redactor),
        "steps": steps,
    }
