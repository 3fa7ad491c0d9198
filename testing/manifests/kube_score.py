"""kube-score (github.com/zegl/kube-score) on manifests, less what hack/manifests-accepted.txt accepts with a reason."""

import fnmatch
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = ROOT / "hack" / "manifests-accepted.txt"
KUBERNETES = "v1.35"
GOOD = 10
"""The grade of a check that found nothing."""


class Finding(NamedTuple):
    """One check's verdict on one object."""

    check: str
    target: str
    """KIND/NAME."""
    sentence: str


class Accepted(NamedTuple):
    """A line of hack/manifests-accepted.txt. `check` is one, or `CHECK:` and how what it says begins."""

    check: str
    target: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """It is about this finding."""
        check, _, beginning = self.check.partition(":")
        comment = finding.sentence.partition(": ")[2] or finding.sentence
        same = finding.check == check and comment.startswith(beginning)
        return same and fnmatch.fnmatchcase(finding.target, self.target)


def accepted() -> list[Accepted]:
    """The lines. Raises ValueError naming one without a reason."""
    lines = []
    for line in ACCEPTED.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            words = line.split(" ", 2)
            if len(words) < 3 or not words[2].strip():
                raise ValueError(f"hack/manifests-accepted.txt: {line!r} has no reason")
            lines.append(Accepted(*words))
    return lines


def findings(program: Path, text: str) -> list[Finding]:
    """All that kube-score criticises in these YAML documents. Raises RuntimeError when it cannot read them."""
    options = ["score", "--output-format", "json", "--kubernetes-version", KUBERNETES, "-"]
    command: list[str | Path] = [program, *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240, check=False)
    try:
        objects: list[dict[str, Any]] = json.loads(done.stdout) or []
    except ValueError:
        raise RuntimeError(f"kube-score ended with {done.returncode}: {done.stderr[-2000:]}") from None
    return [
        Finding(check["check"]["id"], f"{item['type_meta']['kind']}/{item['object_meta']['name']}", comment)
        for item in objects
        for check in item["checks"]
        if not check["skipped"] and check["grade"] < GOOD
        for comment in _sentences(check["comments"])
    ]


def unaccepted(every: Iterable[Finding], lines: Sequence[Accepted]) -> list[Finding]:
    """Those that no line covers, each once."""
    return sorted({finding for finding in every if not any(line.covers(finding) for line in lines)})


def _sentences(comments: Sequence[dict[str, str]] | None) -> list[str]:
    sentence = [": ".join(filter(None, (one["path"], one["summary"]))) for one in comments or ()]
    return sentence or [""]
