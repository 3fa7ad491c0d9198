"""`make try`: the demo's story on this machine alone, in two minutes. Its last line is the demo's JSON."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo import picture
from demo.halves import both_halves
from demo.narrator import Narrator, StoryFailedError
from demo.one_machine import LONGEST, LocalApi, small_quickstart
from demo.recorder import Recorder
from demo.settings import Settings
from demo.waiting import until
from learnloop_operator.cli.cluster import with_its_parent
from toolkit.main_program import run_as_program
from toolkit.work_groups import current

START_SECONDS, STOP_SECONDS = 180.0, 60
PROGRAM = [sys.executable, "-m", "learnloop_local", "local"]


def main() -> int:
    """Runs the story; returns the exit status."""
    narrator = Narrator()
    settings = replace(Settings.read(), namespace="default")
    text = small_quickstart(settings)
    narrator.chapter("PostgreSQL, NATS, data plane and operator, as processes of yours")
    # A short name: macOS allows a socket's path 104 characters.
    with (
        tempfile.TemporaryDirectory(prefix="ll-", ignore_cleanup_errors=True) as folder,
        _running(Path(folder), narrator) as api,
    ):
        settings = replace(settings, quickstart=Path(folder) / "quickstart.yaml")
        settings.quickstart.write_text(text)
        recorder = Recorder(api, settings)
        with recorder:
            figures = both_halves(api, settings, narrator, LONGEST)
        figures["total_seconds"] = round(narrator.elapsed(), 1)
        drawn = settings.picture or Path(os.environ["PYTHONPYCACHEPREFIX"]).parent / "try.svg"
        picture.draw(recorder.samples, drawn)
        narrator.say(f"drew the run in {drawn}")
        if sys.stdin.isatty():
            narrator.say("the loop goes on, and so does the console; Ctrl-C ends both")
        print(json.dumps(figures), flush=True)
        while sys.stdin.isatty():
            current().check()
            time.sleep(0.2)
    return 0


@contextmanager
def _running(folder: Path, narrator: Narrator) -> Iterator[LocalApi]:
    """`learnloop local up` for the time of the block, in a folder of its own."""
    log, environment = folder / "log", {**os.environ, "LEARNLOOP_LOCAL": str(folder)}
    log.touch(0o600)  # it has the address of the console
    with log.open("w") as output:
        up = subprocess.Popen(
            with_its_parent([*PROGRAM, "up"], STOP_SECONDS),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        shown = 0

        def look() -> bool | None:
            nonlocal shown
            lines = log.read_text().splitlines()
            for line in lines[shown:]:
                narrator.say(line)
            shown = len(lines)
            if up.poll() is not None:
                raise StoryFailedError(f"learnloop local up ended with {up.returncode}; its last lines are above")
            return any(line.startswith("console: ") for line in lines) or None

        until("the console", look, START_SECONDS, every=0.1)
        narrator.say(f"command line: LEARNLOOP_LOCAL={folder} hack/learnloop local why cartpole")
        yield LocalApi(folder / "local" / "api.sock")
    finally:
        narrator.say("stopping")
        up.terminate()
        with suppress(subprocess.TimeoutExpired):
            up.wait(STOP_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(up.pid, signal.SIGKILL)
        up.wait()
        subprocess.run([*PROGRAM, "down"], env=environment, check=False, capture_output=True)  # its PostgreSQL


if __name__ == "__main__":
    sys.exit(run_as_program("make try", main))
