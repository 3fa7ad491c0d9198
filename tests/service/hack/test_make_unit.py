"""`make unit` makes the environment and Helm at the same time; the first failure ends it all."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from testing.fake_programs import Fakes

UNIT = Path(__file__).resolve().parents[3] / "hack" / "unit"


@pytest.fixture
def machine(tmp_path: Path) -> Fakes:
    fakes = Fakes(tmp_path)
    fakes.program("make", "exit 1")  # asked whether the environment is there: it is not
    fakes.program("uv", f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    fakes.program("go", f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    return fakes


def unit(machine: Fakes) -> "subprocess.CompletedProcess[str]":
    folders = [folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "helm").exists()]
    told = {**os.environ, "PATH": ":".join([str(machine.folder), *folders])}
    told |= {"XDG_CACHE_HOME": str(machine.folder.parent), "VENV": str(machine.folder.parent / "environment")}
    return subprocess.run([UNIT], env=told, capture_output=True, text=True, timeout=60, check=False)


def ended(machine: Fakes) -> bool:
    """Whether the program that would have gone on for ever has ended, if it ever began; it may take a moment."""
    note = machine.folder.parent / "pid"
    if not note.exists():
        return True
    status, deadline = Path(f"/proc/{note.read_text().strip()}/stat"), time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if status.read_text().rsplit(")", 1)[1].split()[0] in ("Z", "X"):
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_a_failing_environment_ends_the_compilation_of_helm(machine: Fakes) -> None:
    machine.program("uv", "sleep 1; echo uv: no network >&2; exit 2")
    done = unit(machine)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("ended with 2: uv: no network")
    assert ended(machine)


def test_a_failing_compilation_of_helm_ends_the_environment(machine: Fakes) -> None:
    machine.program("go", "sleep 1; echo no space left on device; exit 1")
    done = unit(machine)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("ended with 1: no space left on device")
    assert ended(machine)
