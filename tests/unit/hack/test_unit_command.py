"""hack/unit: what it needs comes side by side, a failure ends the rest at once, and its reason is the last line."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testing.fake_programs import Fakes

HACK = Path(__file__).resolve().parents[3] / "hack"
GENEROUS = 240.0
NEVER_ENDS = "echo $$ >>{pids}\nsleep 1000 & echo $! >>{pids}\nwait"


class Checkout:
    """A checkout with hack/unit in it, on a machine without a Helm, where environment and Go are played."""

    def __init__(self, folder: Path) -> None:
        self.fakes = Fakes(folder)
        self.folder = folder / "checkout"
        self.pids = folder / "pids"
        for name in ("toolkit", "go_programs"):
            shutil.copytree(HACK / name, self.folder / "hack" / name, ignore=shutil.ignore_patterns("modules"))
        shutil.copytree(HACK / "go_programs" / "modules" / "kube", self.folder / "hack/go_programs/modules/kube")
        shutil.copy(HACK / "unit", self.folder / "hack")
        (self.folder / "Makefile").write_text(".venv/.ready:\n\tfalse\n")
        self.program("hack/venv", NEVER_ENDS)
        self.program(".venv/bin/pytest", 'echo "pytest $*"')
        self.fakes.program("go")
        self.compiler(NEVER_ENDS)

    def program(self, path: str, script: str) -> None:
        """Put a shell script into the checkout."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/bash\n" + script.format(pids=self.pids) + "\n")
        file.chmod(0o755)

    def compiler(self, script: str) -> None:
        """What compiling Helm does: it is called by `nice`."""
        self.fakes.program("nice", script.format(pids=self.pids))

    def start(self) -> "subprocess.Popen[str]":
        """Run hack/unit."""
        path = f"{self.fakes.folder}:/usr/bin:/bin"
        told = self.fakes.environment(XDG_CACHE_HOME=str(self.folder / "cache")) | {"PATH": path, "UNIT_PROCESSES": "3"}
        command = [sys.executable, str(self.folder / "hack" / "unit"), "-k", "one"]
        return subprocess.Popen(command, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for(self, count: int) -> None:
        """Until so many processes that never end have started."""
        deadline = time.monotonic() + GENEROUS
        while not self.pids.exists() or len(self.pids.read_text().split()) < count:
            assert time.monotonic() < deadline, "they did not start"
            time.sleep(0.02)

    def running(self) -> list[str]:
        """Those of them that still run."""
        return [pid for pid in self.pids.read_text().split() if _runs(pid)]


def _runs(pid: str) -> bool:
    """One that has ended and is yet to be collected does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if Path("/usr/bin/helm").exists() or Path("/bin/helm").exists():
        pytest.skip("this machine's own folders hold a Helm, so that none would be compiled")
    return Checkout(tmp_path)


def finished(program: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    said, _ = program.communicate(timeout=GENEROUS)
    return program.returncode, said.splitlines()


WAITS_FOR_OTHER = "until [[ -s {pids} ]]; do sleep 0.02; done\n"


def test_a_failed_environment_ends_the_compiler_and_is_the_last_line(checkout: Checkout) -> None:
    checkout.program("hack/venv", WAITS_FOR_OTHER + "echo 'error: No space left on device' >&2; exit 2")
    status, said = finished(checkout.start())
    assert status == 2
    assert said[-1].startswith("hack/unit: ")
    assert said[-1].endswith("ended with 2: error: No space left on device")
    assert not checkout.running()


def test_a_failed_compiler_ends_the_environment_and_is_the_last_line(checkout: Checkout) -> None:
    checkout.compiler(WAITS_FOR_OTHER + "echo 'proxy: connection refused' >&2; exit 1")
    status, said = finished(checkout.start())
    assert status == 2
    assert said[-1].startswith("hack/unit: ")
    assert said[-1].endswith("proxy: connection refused")
    assert not checkout.running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_middle_ends_both(checkout: Checkout, number: signal.Signals) -> None:
    program = checkout.start()
    checkout.wait_for(4)
    program.send_signal(number)
    status, said = finished(program)
    assert status == 130
    assert said[-1] == f"hack/unit: interrupted by {number.name}; what it had started has been ended"
    assert not checkout.running()


def test_the_tests_run_once_both_are_there(checkout: Checkout) -> None:
    (checkout.folder / ".venv" / ".ready").touch()
    checkout.fakes.program("helm", "echo v3")
    status, said = finished(checkout.start())
    assert status == 0
    assert said[-1] == "pytest tests/unit -n 3 --dist loadfile -p no:schemathesis -k one"
