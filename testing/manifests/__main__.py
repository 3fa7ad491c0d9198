"""`make check-manifests`: kubeconform and kube-score over the chart, and over what the operator makes.

kubeconform looks at the examples and at learnloop's definitions, too. Prints what does not fit and the findings without
a written reason, and exits with 1 when there are any.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from go_programs import go_build
from testing.manifests.kube_score import ACCEPTED, Finding, accepted, findings, unaccepted
from testing.manifests.kubeconform import NOT_LOOKED_AT, misfits, write_schemas
from testing.manifests.made_by_operator import everything
from testing.manifests.rendered_chart import VALUES, rendered

ROOT = ACCEPTED.parents[1]


def documents(helm: Path) -> Iterator[tuple[str, str]]:
    """Name → YAML documents of everything that is looked at."""
    for name, values in VALUES.items():
        yield f"chart/{name}", rendered(helm, values)
    for name, items in everything().items():
        yield name, yaml.safe_dump_all(json.loads(json.dumps(items)))


def written() -> Iterator[tuple[str, str]]:
    """Name → the manifests that lie in the repository as people apply them."""
    for folder in ("crds", "examples"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def all_findings(program: Path, helm: Path) -> dict[str, list[Finding]]:
    """kube-score's findings, by name."""
    return {name: findings(program, text) for name, text in documents(helm)}


def all_misfits(program: Path, helm: Path) -> list[str]:
    """kubeconform's findings, a sentence each."""
    with TemporaryDirectory() as folder:
        write_schemas(Path(folder))
        return [
            f"{name}: {misfit.target}: {misfit.sentence}"
            for name, text in (*documents(helm), *written())
            for misfit in misfits(program, Path(folder), text, others=frozenset(NOT_LOOKED_AT))
        ]


def helm_program() -> Path:
    """The Helm that hack/helm finds or builds."""
    root = ACCEPTED.parent
    return Path(
        subprocess.run([sys.executable, root / "helm"], check=True, capture_output=True, text=True).stdout.strip()
    )


def main() -> int:
    """1 when something does not fit or has no reason, or a reason is of nothing any more."""
    programs = {
        name: go_build.ensure(module, [name])[name]
        for name, module in (("kube-score", go_build.KUBE_SCORE), ("kubeconform", go_build.KUBECONFORM))
    }
    helm = helm_program()
    unfit = all_misfits(programs["kubeconform"], helm)
    print("\n".join(unfit), end="\n" if unfit else "")
    lines, problems = accepted(), all_findings(programs["kube-score"], helm)
    bad = {name: unaccepted(some, lines) for name, some in problems.items()}
    for name, some in bad.items():
        for finding in some:
            print(f"{name}: {finding.target}: {finding.check}: {finding.sentence}")
    everywhere = [finding for some in problems.values() for finding in some]
    unused = [line for line in lines if not any(line.covers(finding) for finding in everywhere)]
    for line in unused:
        print(f"hack/manifests-accepted.txt: nothing is found that {line.check} {line.target} accepts: remove the line")
    count = len(everywhere)
    print(
        f"{len(problems)} renderings, {len(unfit)} misfits, {count} findings, {sum(map(len, bad.values()))} unexplained"
    )
    return 1 if unfit or unused or any(bad.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
