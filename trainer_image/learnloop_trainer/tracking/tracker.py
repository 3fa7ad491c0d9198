"""Points of a run's curves on their way to services, and the figures of its process and its curve of returns."""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from learnloop_trainer.tracking.services import Ending, Point, Service, services
from learnloop_trainer.training_order import Order

WRITE_SECONDS, LAST_SECONDS = 5.0, 10.0
MOST_WAITING = 10_000  # points for a service that is away; then the oldest are dropped
SETTLED, LEAST_POINTS, MOST_POINTS = 0.05, 8, 512  # of a curve of returns


class Feed:
    """The points that one service has not taken yet."""

    def __init__(self, service: Service) -> None:
        self.service, self._waiting, self._failing = service, deque[Point](maxlen=MOST_WAITING), False

    def add(self, point: Point) -> None:
        self._waiting.append(point)

    def write(self) -> bool:
        """Write what waits; False: it did not, and still waits."""
        points = list(self._waiting)
        if points and not self._try(lambda: self.service.write(points)):
            return False
        for _ in points:
            self._waiting.popleft()
        return True

    def end(self, ending: Ending) -> None:
        if self.write():
            self._try(lambda: self.service.end(ending))

    def _try(self, action: Callable[[], None]) -> bool:
        problem = ""
        try:
            action()
        except Exception as error:  # of any foreign library or server: training goes on
            problem = str(error)
        if bool(problem) != self._failing:
            does = f"does not take the curves, training goes on: {problem}" if problem else "takes the curves again"
            print(f"{self.service.name} {does}", flush=True)
        self._failing = bool(problem)
        return not problem


class Tracker:
    """Takes points from the training thread. Each service has its own thread: none slows training or another."""

    def __init__(self, named: Sequence[Service]) -> None:
        self.feeds = [Feed(service) for service in named]
        self.threads: list[threading.Thread] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._ending: Ending = "FAILED"

    def note(self, step: int, values: Mapping[str, float]) -> None:
        """Take a point of every curve named, without waiting."""
        with self._lock:
            for feed in self.feeds:
                feed.add((step, time.time(), dict(values)))
            if not self.threads:
                self.threads = [
                    threading.Thread(target=self._run, args=(feed,), name="tracking", daemon=True)
                    for feed in self.feeds
                ]
                for thread in self.threads:
                    thread.start()

    def finish(self, ending: Ending) -> None:
        """Write what waits and end the runs, within LAST_SECONDS. A run that will go on is not finished."""
        self._ending = ending
        self._stop.set()
        last = time.monotonic() + LAST_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, last - time.monotonic()))

    def _run(self, feed: Feed) -> None:
        while not self._stop.wait(WRITE_SECONDS):
            feed.write()
        feed.end(self._ending)


def tracker(order: Order, environ: Mapping[str, str], namespace: str) -> Tracker:
    return Tracker(services(order, environ, namespace))


class LearningCurve:
    """Mean returns by step, thinned so that a long run takes no more room than a short one."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._every, self._skipped = 1, 0

    def note(self, step: int, mean_return: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._points.append((step, mean_return))
        if len(self._points) > MOST_POINTS:
            self._points = self._points[1::2]
            self._every *= 2

    def figures(self) -> dict[str, float]:
        """`convergence`: 1 less the change over the last quarter of the steps, as a share of the whole range.
        `samples_to_convergence`: the step from which on the return stayed within 5 % of that range of its last value;
        only once that holds for the last quarter. Nothing while there are few points, or all are the same.
        """
        values = [value for _, value in self._points]
        spread = max(values) - min(values) if len(values) >= LEAST_POINTS else 0.0
        if spread <= 0.0:
            return {}
        first, last = self._points[0][0], self._points[-1][0]
        quarter = last - (last - first) / 4.0
        late = [value for step, value in self._points if step >= quarter]
        figures = {"convergence": max(0.0, 1.0 - abs(late[-1] - late[0]) / spread)}
        settled = last
        for step, value in reversed(self._points):
            if abs(value - values[-1]) > SETTLED * spread:
                break
            settled = step
        if settled <= quarter:
            figures["samples_to_convergence"] = float(settled)
        return figures


class ProcessFigures:
    """Shares of processors, memory and GPU that this process uses, from 0 to 1, since the last look.

    Args:
        cpus: processors that the cgroup allows.
        root: stands for `/` in tests.
    """

    def __init__(
        self,
        cpus: float,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._cpus = cpus if math.isfinite(cpus) else float(os.cpu_count() or 1)
        self._root, self._clock, self._processor = root, clock, processor
        self._at, self._used = clock(), processor()

    def look(self) -> dict[str, float]:
        """Figures as `learnloop_api.wire.training` names them; those that cannot be read are left out."""
        now, used = self._clock(), self._processor()
        figures: dict[str, float] = {}
        if now - self._at > 0.01:
            figures["cpu_utilization"] = min(1.0, (used - self._used) / (now - self._at) / self._cpus)
            self._at, self._used = now, used
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
        resident = self._number("proc/self/statm", 1, 0.0) * page
        if resident:
            limit = self._number("sys/fs/cgroup/memory.max", 0, math.inf)
            figures["memory_bytes"] = resident
            figures["memory_utilization"] = min(1.0, resident / min(limit, float(page * pages)))
        return figures | _gpu()

    def _number(self, path: str, index: int, default: float) -> float:
        try:
            return float((self._root / path).read_text().split()[index])
        except (OSError, ValueError, IndexError):  # no such file, or "max"
            return default


def _gpu() -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    reserved = float(torch.cuda.memory_reserved())
    figures = {"gpu_memory_bytes": reserved, "gpu_memory_utilization": (total - free) / total}
    try:
        figures["gpu_utilization"] = torch.cuda.utilization() / 100.0
    except Exception:  # torch does not require the library that it needs for this
        return figures
    return figures
