"""Things done side by side: when one fails or the user interrupts, the others are ended and the reason is last."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolkit.commands import CommandFailed, feed, follow, run
from toolkit.process_tree import running
from toolkit.work_groups import Ended, side_by_side

HACK = Path(__file__).resolve().parents[3] / "hack"
GENEROUS = 60.0


def pids_in(folder: Path, count: int) -> list[int]:
    deadline = time.monotonic() + GENEROUS
    while time.monotonic() < deadline:
        pids = [text for path in folder.glob("pid*") if (text := path.read_text().strip())]
        if len(pids) == count:
            return [int(text) for text in pids]
        time.sleep(0.01)
    raise AssertionError(f"{count} processes did not start")


def test_no_program_starts_in_work_that_was_ended(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def goes_on() -> None:
        try:
            follow(["sleep", "1000"])
        except Ended:
            try:
                run(["touch", str(tmp_path / "started")])
            except Ended as error:
                errors.append(error)
            raise

    with pytest.raises(CommandFailed):
        side_by_side(goes_on, lambda: run(["false"]))
    assert len(errors) == 1
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("on_term", "grace"), [("", 0.2), ("sleep 0.3; touch whole; exit 1", GENEROUS)], ids=["deaf", "careful"]
)
def test_a_program_has_its_grace_to_end_and_is_killed_after_it(tmp_path: Path, on_term: str, grace: float) -> None:
    loop = f"cd {tmp_path}; trap '{on_term}' TERM; echo $$ >pid; while :; do sleep 0.05; done"

    def fails() -> None:
        pids_in(tmp_path, 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        side_by_side(lambda: follow(["bash", "-c", loop], grace_seconds=grace), fails)
    assert not running(pids_in(tmp_path, 1)[0])
    assert (tmp_path / "whole").exists() == bool(on_term)


def test_a_silent_program_that_computes_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_IDLE_MINUTES", "0.02")
    computes = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass\nprint('done')"
    assert run([sys.executable, "-c", computes]) == "done\n"


def test_a_program_that_hangs_up_on_what_it_is_fed_says_why() -> None:
    with pytest.raises(CommandFailed, match="no such image"):
        feed(["sh", "-c", "exec 0<&-; echo no such image >&2; exit 1"], lambda stream: stream.write(b"x" * 10_000_000))


CLEANS_TOO_LONG = """
import sys, time
sys.path.insert(0, sys.argv[1])
from toolkit import main_program
from toolkit.commands import follow

main_program.CLEANING_SECONDS = 0.2

def work():
    try:
        follow(["bash", "-c", f"echo $$ >{sys.argv[2]}/pid; sleep 1000"])
    finally:
        time.sleep(1000)

sys.exit(main_program.run_as_program("this program", work))
"""


def test_an_interrupted_program_does_not_claim_an_end_that_it_has_not_seen(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLEANS_TOO_LONG, str(HACK), str(tmp_path)]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    pids_in(tmp_path, 1)
    os.kill(program.pid, signal.SIGTERM)
    _, output = program.communicate(timeout=GENEROUS)
    assert program.returncode == 130
    assert output.splitlines()[-1] == (
        "this program: interrupted by SIGTERM; it was still cleaning up after 0 s: look at what it has left"
    )
