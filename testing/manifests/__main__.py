"""`make check-manifests`: kube-score over the chart and over what the operator makes.

Prints the findings without a written reason, and exits with 1 when there are any.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from go_programs import go_build
from testing.manifests.kube_score import ACCEPTED, Finding, accepted, findings, unaccepted
from testing.manifests.made_by_operator import everything
from testing.manifests.rendered_chart import VALUES, rendered


def documents(helm: Path) -> Iterator[tuple[str, str]]:
    """Name → YAML documents of everything that is looked at."""
    for name, values in VALUES.items():
        yield f"chart/{name}", rendered(helm, values)
    for name, items in everything().items():
        yield name, yaml.safe_dump_all(json.loads(json.dumps(items)))


def all_findings(program: Path, helm: Path) -> dict[str, list[Finding]]:
    """What kube-score criticises, by name."""
    return {name: findings(program, text) for name, text in documents(helm)}


def helm_program() -> Path:
    """The Helm that hack/helm finds or builds."""
    root = ACCEPTED.parent
    return Path(
        subprocess.run([sys.executable, root / "helm"], check=True, capture_output=True, text=True).stdout.strip()
    )


def main() -> int:
    """1 when something has no reason, or a reason is of nothing any more."""
    program = go_build.ensure(go_build.KUBE_SCORE, ["kube-score"])["kube-score"]
    lines, found = accepted(), all_findings(program, helm_program())
    bad = {name: unaccepted(some, lines) for name, some in found.items()}
    for name, some in bad.items():
        for finding in some:
            print(f"{name}: {finding.target}: {finding.check}: {finding.said}")
    everywhere = [finding for some in found.values() for finding in some]
    unused = [line for line in lines if not any(line.covers(finding) for finding in everywhere)]
    for line in unused:
        print(f"hack/manifests-accepted.txt: nothing is found that {line.check} {line.target} accepts: remove the line")
    count = len(everywhere)
    print(f"{len(found)} renderings, {count} findings, {sum(map(len, bad.values()))} without a reason")
    return 1 if unused or any(bad.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
