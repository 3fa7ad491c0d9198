"""hack/apt: one hand on apt, patience with others, and a record of what was installed from here."""

import subprocess
from pathlib import Path

import pytest

from testing.fake_programs import Fakes

APT = Path(__file__).resolve().parents[3] / "hack" / "apt"

# Refuses to run twice, as apt does on the lock of the package lists.
APT_GET = """
[[ " $* " == *" --simulate "* ]] && { cat "$FAKE/simulated" 2>/dev/null; exit 0; }
mkdir "$FAKE/busy" 2>/dev/null || { echo "E: Could not get lock /var/lib/apt/lists/lock."; exit 100; }
sleep "${FAKE_SECONDS:-0.1}"
rmdir "$FAKE/busy"
[[ " $* " != *" ${FAKE_FAILS:-nothing} "* ]] || { echo "E: Unable to locate package nonsuch"; exit 100; }
[[ " $* " != *" update "* ]] || touch "$LEARNLOOP_APT_LISTS/mirror_Packages"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Fakes:
    fakes = Fakes(tmp_path)
    fakes.program("apt-get", APT_GET)
    (tmp_path / "lists").mkdir()
    return fakes


def started(machine: Fakes, *arguments: str, program: Path = APT, **environment: str) -> subprocess.Popen[str]:
    home = machine.folder.parent
    variables = machine.environment(
        FAKE=str(home),
        LEARNLOOP_APT_STATE=str(home / "state"),
        LEARNLOOP_APT_LOCK=str(home / "lock"),
        LEARNLOOP_APT_LISTS=str(home / "lists"),
        LEARNLOOP_APT_PAUSE_SECONDS="0.05",
        **environment,
    )
    return subprocess.Popen(
        [program, *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def changes(machine: Fakes) -> list[str]:
    return [call for call in machine.calls() if "--simulate" not in call]


def test_two_runs_at_the_same_time_take_turns(machine: Fakes) -> None:
    runs = [started(machine, "install", name, FAKE_SECONDS="0.3") for name in ("buildah", "containerd")]
    results = [finished(run) for run in runs]
    assert [status for status, _ in results] == [0, 0]
    assert not any("Could not get lock" in output for _, output in results), "they met on apt's lock"
    assert any("waiting for another command of learnloop" in output for _, output in results)
    updates = [call for call in machine.calls() if call.endswith(" update")]
    assert len(updates) == 1, "the second run finds the lists as fresh as the first one left them"


def test_a_lock_held_by_another_program_is_waited_for_and_said(machine: Fakes) -> None:
    busy = machine.folder.parent / "busy"
    busy.mkdir()
    run = started(machine, "install", "buildah")
    assert run.stdout is not None
    line = ""
    while "another program uses apt" not in line:
        line = run.stdout.readline()
        assert line, "it ended instead of waiting"
    busy.rmdir()
    status, _ = finished(run)
    assert status == 0


@pytest.mark.parametrize("fails", ["nothing", "--no-download"])
def test_packages_that_were_not_there_are_written_down_before_they_are_unpacked(machine: Fakes, fails: str) -> None:
    simulated = "Inst runc (1.1 Debian)\nInst libc6 [2.36] (2.37 Debian)\nConf runc (1.1 Debian)\n"
    (machine.folder.parent / "simulated").write_text(simulated)
    finished(started(machine, "install", "runc", FAKE_FAILS=fails))
    assert (machine.folder.parent / "state" / "debian-packages").read_text() == "runc\n"


DPKG_QUERY = """for name; do [[ $name == -* || $name == *'{'* ]] || echo "ii  $name"; done"""


def recorded(machine: Fakes, *packages: str) -> None:
    machine.program("dpkg-query", DPKG_QUERY)
    state = machine.folder.parent / "state"
    state.mkdir()
    (state / "debian-packages").write_text("".join(f"{package}\n" for package in packages))


def test_remove_takes_away_what_was_installed_and_the_record_of_it(machine: Fakes) -> None:
    recorded(machine, "runc", "socat")
    status, output = finished(started(machine, "remove"))
    assert status == 0
    assert any("purge --yes runc socat" in call for call in changes(machine))
    assert not (machine.folder.parent / "state").exists()
    assert "removed 2 packages" in output.splitlines()[-1]
    changed = changes(machine)
    assert finished(started(machine, "remove"))[0] == 0
    assert changes(machine) == changed, "nothing is left to remove"


def test_remove_leaves_what_another_package_has_come_to_need(machine: Fakes) -> None:
    recorded(machine, "runc", "socat")
    machine.program(
        "apt-get",
        """[[ " $* " == *" --simulate "* ]] || exit 0
        [[ " $* " == *" runc "* || "$*" == *runc ]] && echo "Purg docker.io [20]"
        exit 0""",
    )
    status, output = finished(started(machine, "remove"))
    assert status == 0
    assert "runc stays, for it is needed by: docker.io" in output
    assert [call for call in changes(machine) if "purge" in call] == ["apt-get -o Acquire::Retries=3 purge --yes socat"]


@pytest.mark.parametrize(
    ("environment", "busy", "reason"),
    [
        ({"FAKE_FAILS": "nonsuch"}, False, "hack/apt: E: Unable to locate package nonsuch"),
        ({"LEARNLOOP_APT_PATIENCE_SECONDS": "0"}, True, "hack/apt: another program has held apt's lock for 0 s"),
    ],
)
def test_the_reason_is_seen_by_who_throws_the_rest_of_the_output_away(machine, environment, busy, reason):
    if busy:
        (machine.folder.parent / "busy").mkdir()
    quiet = machine.folder.parent / "quiet"
    quiet.write_text(f'#!/bin/bash\nexec {APT} "$@" >/dev/null\n')
    quiet.chmod(0o755)
    status, output = finished(started(machine, "install", "nonsuch", program=quiet, **environment))
    assert status != 0
    assert output.splitlines()[-1:] == [reason]
    assert len([call for call in changes(machine) if "nonsuch" in call]) == (not busy), "no failure is tried again"
