"""One line on stderr for each step, with the time since the start, and a sign of life during long ones.

Nothing but results goes to stdout, so that `KUBECONFIG=$(python3 hack/cluster up)` works.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolkit.work_groups import Ended, current

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
    under_way = Step(name)
    done = threading.Event()
    say(f"{name} …")
    threading.Thread(target=_beat, args=(under_way, done), daemon=True).start()
    try:
        yield under_way
    except Ended:
        done.set()
        say(f"{name}: ended after {under_way.took():.1f} s")
        raise
    except BaseException:
        done.set()
        say(f"{name}: failed after {under_way.took():.1f} s")
        raise
    done.set()
    say(f"{name}: done in {under_way.took():.1f} s")


def _beat(under_way: Step, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_SECONDS):
        detail = f", {under_way.detail}" if under_way.detail else ""
        say(f"{under_way.name}: still at it after {under_way.took():.0f} s{detail}")


def wait_until(what: str, ready: Callable[[], bool], seconds: float, hint: str = "") -> None:
    """Poll until `ready` says so.

    Raises TimeoutError naming what was waited for, with the hint where to look; Ended when the work was ended.
    """
    group = current()
    deadline = time.monotonic() + seconds
    pause = 0.02
    while not ready():
        group.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come up within {seconds:.0f} s. {hint}".rstrip())
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
