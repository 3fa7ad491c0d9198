"""One line on stderr for each step, with the time since the start, and a sign of life during long ones.

Nothing but results goes to stdout, so that `KUBECONFIG=$(python3 hack/cluster up)` works.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

HEARTBEAT_SECONDS = 15.0

_started = time.monotonic()
_lock = threading.Lock()


def say(text: str) -> None:
    """Print one progress line."""
    with _lock:
        print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)


class Step:
    """A step under way; `detail` is what its next heartbeat will tell."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.detail = ""
        self.began = time.monotonic()

    def took(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.began


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Announce a step, repeat that it lives every 15 s, and say how long it took."""
    current = Step(name)
    done = threading.Event()
    say(f"{name} …")
    threading.Thread(target=_beat, args=(current, done), daemon=True).start()
    try:
        yield current
    except BaseException:
        done.set()
        say(f"{name}: failed after {current.took():.1f} s")
        raise
    done.set()
    say(f"{name}: done in {current.took():.1f} s")


def _beat(current: Step, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_SECONDS):
        detail = f", {current.detail}" if current.detail else ""
        say(f"{current.name}: still at it after {current.took():.0f} s{detail}")


def side_by_side(*jobs: Callable[[], object]) -> None:
    """Run the jobs at the same time and wait for all of them.

    Raises whatever the first failing job raised, after the others have ended.
    """
    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


def wait_until(what: str, ready: Callable[[], bool], seconds: float, hint: str = "") -> None:
    """Poll until `ready` says so.

    Raises TimeoutError naming what was waited for, with the hint where to look.
    """
    deadline = time.monotonic() + seconds
    pause = 0.02
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come up within {seconds:.0f} s. {hint}".rstrip())
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
