"""checkov's Kubernetes policies over the rendered chart and all that the operator makes, and values that are drawn.

manifests-accepted.txt has the findings that are accepted, each with a reason; one that accepts nothing is a failure.
"""

import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.judges.cases import Suite, finish
from bench.judges.drawn_values import drawn_values
from testing.manifests.__main__ import documents, helm_program

VERSION = "3.3.30"
ACCEPTED = Path(__file__).with_name("manifests-accepted.txt")


def main() -> int:
    """1 when a finding has no reason, a reason no finding, or values of the schema make no manifests."""
    made = [str(Path(__file__).parents[1] / "peer_venv"), sys.executable, "judges-manifests", f"checkov=={VERSION}"]
    python = Path(subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    suite, accepted, used = Suite("checkov, Kubernetes", VERSION), list(_accepted()), set[int]()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in documents(helm_program()):
            Path(folder, f"{name.replace('/', '--')}.yaml").write_text(text, encoding="utf-8")
        command = [str(python.with_name("checkov")), "--directory", folder, "--framework", "kubernetes"]
        options = ["--compact", "--quiet", "--skip-download", "--output", "json"]
        done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, timeout=900)
    result = json.loads(done.stdout)
    suite.cases = result["summary"]["passed"] + result["summary"]["failed"]
    for finding in result["results"]["failed_checks"]:
        check, resource = finding["check_id"], finding["resource"]
        covers = [
            number
            for number, (one, target) in enumerate(accepted)
            if one == check and fnmatch.fnmatch(resource, target)
        ]
        used.update(covers[:1])
        if not covers:
            suite.fails(f"{finding['file_path']}: {resource}: {check} {finding['check_name']}")
    for number in set(range(len(accepted))) - used:
        suite.fails(f"{ACCEPTED.name}: nothing is at fault that {' '.join(accepted[number])} accepts: remove the line")
    return finish(suite, drawn_values())


def _accepted() -> Iterator[tuple[str, str]]:
    for line in ACCEPTED.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            check, target, _reason = line.split(" ", 2)
            yield check, target


if __name__ == "__main__":
    sys.exit(main())
