"""What a suite is: cases to ask, and a detector that tells which replies fail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Literal

from learnloop_gates.cases import Case, Labelled, Reply

Kind = Literal["rate", "groups", "pairs"]
Judge = Callable[[Case, Reply], str]
"""The category of a reply's failure, or ""."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite, ready to be played."""

    cases: Sequence[Case]
    judge: Judge
    labelled: Sequence[Labelled]
    detector: str
    digest: str
    """SHA-256 of what the detector goes by."""
    kind: Kind = "rate"
    groups: Sequence[str] = field(default_factory=tuple)
    """kind groups: every `len(groups)` cases are one prompt, with one group after the other."""
    score: Callable[[Case, Reply], float] | None = None
    """kind pairs: 0 to 1, more is better; left out, 1 where nothing fails."""
    most_tokens: int = 256


def digest_of(*modules: ModuleType | str) -> str:
    """SHA-256 of rules: of the source of these modules, and of these texts."""
    found = sha256()
    for module in modules:
        found.update(module.encode() if isinstance(module, str) else Path(str(module.__file__)).read_bytes())
    return found.hexdigest()
