"""`make audit` by the real govulncheck, with a database of our own: it finds what a program is made of, and says so."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = "hack/go_programs/modules/kubeconform"
USED = "github.com/santhosh-tekuri/jsonschema/v6"
DATE = "2026-01-01T00:00:00Z"

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="go is not on PATH")


def vulnerable(folder: Path, *modules: str) -> str:
    """A database of vulnerabilities in every version of these modules; its address."""
    index = []
    for number, path in enumerate(modules):
        name = f"GO-2026-{number:04}"
        ranges = [{"type": "SEMVER", "events": [{"introduced": "0"}]}]
        affected = [{"package": {"name": path, "ecosystem": "Go"}, "ranges": ranges, "ecosystem_specific": {}}]
        entry = {"schema_version": "1.3.1", "id": name, "modified": DATE, "affected": affected}
        index.append({"path": path, "vulns": [{"id": name, "modified": DATE}]})
        advisory = {"summary": "made up", "details": "made up", "database_specific": {"url": "https://example.com"}}
        write(folder / "ID" / f"{name}.json", {**entry, **advisory})
    write(folder / "index" / "modules.json", index)
    write(folder / "index" / "db.json", {"modified": DATE})
    return folder.as_uri()


def write(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def audit(tmp_path: Path, *modules: str, accepted: str = "", go: str | None = None) -> subprocess.CompletedProcess[str]:
    """The output of `hack/audit` for kubeconform's module when these have vulnerabilities. pip-audit only pretends.

    Args:
        go: a script in the place of go.
    """
    (tmp_path / "accepted.txt").write_text(accepted)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uvx").write_text("#!/bin/sh\nexit 0\n")
    if go is not None:
        (programs / "go").write_text(go)
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GOFLAGS": ""}
    environment["GO_VULNERABILITIES"] = vulnerable(tmp_path / "database", *modules)
    environment["AUDIT_ACCEPTED"] = str(tmp_path / "accepted.txt")
    return subprocess.run(
        [ROOT / "hack" / "audit", MODULE], env=environment, capture_output=True, text=True, timeout=600, check=False
    )


REASON = "GO-2026-0000 schemas come from this repository alone\n"


@pytest.mark.parametrize(
    ("modules", "accepted", "status", "sentence"),
    [
        (["github.com/example/not-used"], "", 0, "No vulnerabilities found"),
        ([USED], "", 1, "GO-2026-0000"),
        ([USED], REASON, 0, "GO-2026-0000 is accepted"),
        ([USED, "golang.org/x/text"], REASON, 1, "GO-2026-0001"),
        ([USED], "GO-2026-0000\n", 2, "GO-2026-0000 has no reason"),
    ],
    ids=["none", "one", "accepted", "another", "no-reason"],
)
def test_what_a_program_of_go_is_made_of_passes_where_no_finding_lacks_a_reason(
    tmp_path: Path, modules: list[str], accepted: str, status: int, sentence: str
) -> None:
    done = audit(tmp_path, *modules, accepted=accepted)
    assert done.returncode == status, done.stdout + done.stderr
    assert sentence in done.stdout + done.stderr


def test_a_checker_that_crashes_after_an_accepted_finding_does_not_pass(tmp_path: Path) -> None:
    crash = (
        "#!/bin/sh\necho 'Vulnerability #1: GO-2026-0000'\necho 'panic: out of memory' >&2\necho 'exit status 2' >&2\n"
    )
    done = audit(tmp_path, accepted="GO-2026-0000 never called\n", go=f"{crash}exit 1\n")
    assert done.returncode == 1, done.stdout + done.stderr
