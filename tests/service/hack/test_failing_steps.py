"""Each step of `make demo` fails once, with programs that only pretend: the rest is ended, and the reason is last."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.fake_programs import Fakes
from testing.servers.child_process import carrying
from testing.waiting import until

HACK = Path(__file__).resolve().parents[3] / "hack"
GENEROUS = 90.0
MARK = "LEARNLOOP_TEST_OF_STEPS"

# The demo itself, without what would change this machine: no bridge, no firewall, no control groups, no look at ports.
DEMO = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from cluster import full_cluster, preconditions, teardown
from cluster.addons import standard
from cluster.node import mounts, network
from toolkit import debian_packages
from images import buildah

def nothing(*_): return None

preconditions.full = preconditions.disk = nothing
network.check = network.ensure = network.remove = mounts.remove_pod_groups = nothing
mounts.unmount_below = mounts.forget_dead_runtime = full_cluster.forget_dead_runtime = nothing
teardown._remove_kubelet_leftovers = standard.fetch = nothing
missing = os.environ.get("FAKE_MISSING")
debian_packages.NODE = {"never-there": missing} if missing else {}
buildah.TOOLS = {}

from demo import source_cluster
from demo.__main__ import main
from toolkit.commands import follow
from toolkit.main_program import run_as_program

if os.environ.get("FAKE_STARTED"):
    kubeconfig = Path(os.environ["FAKE_STARTED"])
    source_cluster.start = lambda more_images=(): kubeconfig
    source_cluster.finish = lambda: follow(["go", "build", "training-operator"])
    source_cluster.restart_on_new_images = lambda: []
sys.exit(run_as_program("make demo", main))
"""
SILENT = "exec sleep 1000"
BUSY = "while sleep 0.2; do echo still at it; done"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, for those of sockets are limited."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ll") as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        yield Path(folder)


@pytest.fixture
def machine(tmp_path: Path, cache: Path) -> Iterator[Fakes]:
    """Everything works, or goes on forever where a test lets another step fail."""
    fakes = Fakes(tmp_path)
    fakes.program("go", BUSY)
    fakes.program("debootstrap", BUSY)
    fakes.program("buildah", '[[ " $* " != *" inspect "* ]]')
    fakes.program("containerd", SILENT)
    for name in ("runc", "ctr", "skopeo"):
        fakes.program(name)
    fakes.program("nice", 'shift 2; exec "$@"')
    yield fakes
    assert not carrying(f"{MARK}={fakes.folder.parent}"), "left running"


def started(machine: Fakes, **environment: str) -> "subprocess.Popen[str]":
    home = machine.folder.parent
    variables = machine.environment(
        **{
            MARK: str(home),
            "LEARNLOOP_APT_STATE": str(home / "apt"),
            "LEARNLOOP_APT_LOCK": str(home / "apt-lock"),
            "LEARNLOOP_APT_LISTS": str(home),
            "CLUSTER": "source",
            **environment,
        }
    )
    command = [sys.executable, "-c", DEMO, str(HACK)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def last_line(process: "subprocess.Popen[str]", status: int) -> str:
    output, _ = process.communicate(timeout=GENEROUS)
    assert process.returncode == status, output
    return output.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "does", "reason"),
    [
        ("apt-get", 'echo "E: no package"; exit 100', "ended with 100: hack/apt: E: no package"),
        ("go", 'echo "k8s.io/api"; echo "compile: signal: killed"; exit 1', "ended with 1: compile: signal: killed"),
        ("debootstrap", 'echo "E: Failed getting release"; exit 1', "ended with 1: E: Failed getting release"),
    ],
)
def test_a_program_fails(machine: Fakes, program: str, does: str, reason: str) -> None:
    machine.program(program, does)
    line = last_line(started(machine, FAKE_MISSING="containerd" if program == "apt-get" else ""), 2)
    assert line.startswith("make demo: `")
    assert line.endswith(reason)


IMAGE_FAILS = """
case " $* " in
  *" bud "*) echo "Error: building at STEP RUN pip install: exit status 2"; exit 125 ;;
  *" inspect "*) echo sha256:0 ;;
esac
"""


def test_building_an_image_fails(machine: Fakes) -> None:
    machine.program("debootstrap", 'for folder; do :; done; mkdir -p "$folder"/{etc/ssl/certs,usr/local/bin}')
    machine.program("buildah", IMAGE_FAILS)
    assert last_line(started(machine), 2).endswith("Error: building at STEP RUN pip install: exit status 2")


def test_a_step_hangs(machine: Fakes) -> None:
    machine.program("go", SILENT)
    line = last_line(started(machine, LEARNLOOP_IDLE_MINUTES="0.05"), 2)
    assert "hangs: for 0.05 minutes it neither printed, computed nor read anything" in line
    assert "go build" in line or "go list" in line


def test_helm_fails(machine: Fakes, tmp_path: Path) -> None:
    machine.program("kubectl")
    machine.program("helm", 'echo "Error: context deadline exceeded"; exit 1')
    line = last_line(started(machine, FAKE_STARTED=str(tmp_path / "kubeconfig")), 2)
    assert line.endswith("ended with 1: Error: context deadline exceeded")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_user_interrupts(machine: Fakes, number: signal.Signals) -> None:
    demo = started(machine)
    calls = ("go build", "debootstrap", "containerd")
    until(lambda: all(any(call.startswith(name) for call in machine.calls()) for name in calls))
    os.kill(demo.pid, number)
    line = last_line(demo, 130)
    assert line == f"make demo: interrupted by {number.name}; what it had started has been ended"
