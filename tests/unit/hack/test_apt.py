"""hack/apt: a record of what was installed from here, and what `remove` leaves."""

import subprocess
from pathlib import Path

import pytest

from testing.fake_programs import Fakes

APT = Path(__file__).resolve().parents[3] / "hack" / "apt"

APT_GET = """
[[ " $* " == *" --simulate "* ]] && { cat "$FAKE/simulated" 2>/dev/null; exit 0; }
[[ " $* " != *" ${FAKE_FAILS:-nothing} "* ]] || { echo "E: Unable to locate package nonsuch"; exit 100; }
[[ " $* " != *" update "* ]] || touch "$LEARNLOOP_APT_LISTS/mirror_Packages"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Fakes:
    fakes = Fakes(tmp_path)
    fakes.program("apt-get", APT_GET)
    (tmp_path / "lists").mkdir()
    return fakes


def started(machine: Fakes, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    home = machine.folder.parent
    variables = machine.environment(
        FAKE=str(home),
        LEARNLOOP_APT_STATE=str(home / "state"),
        LEARNLOOP_APT_LOCK=str(home / "lock"),
        LEARNLOOP_APT_LISTS=str(home / "lists"),
        **environment,
    )
    return subprocess.Popen(
        [APT, *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def changes(machine: Fakes) -> list[str]:
    return [call for call in machine.calls() if "--simulate" not in call]


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
