"""Reports of a run: a progress line every few seconds, a heartbeat every second.

Heartbeats go out from a thread of their own, so an unreachable data plane never slows training. The thread falls silent
when the main thread has shown no sign of life for a while: a heartbeat must mean that work is going on, or the
operator could not see a hang.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from learnloop_api.wire.training import FIGURES, CurvePoint, Heartbeat, Proof, ReturnEstimate
from learnloop_environments.errors import TrainerError
from learnloop_trainer import statistics, thread_limits, tracking, training_order
from learnloop_trainer.store import Store

BEAT_SECONDS = 1.0
LINE_SECONDS = 5.0
SILENT_AFTER = 300.0  # longer than any honest update or rollout; a broken collective is noticed much sooner
RECENT = 100  # episodes behind the recent return
TRAIL = 200  # episodes in which the operator looks for anomalies

Phase = Literal["starting", "training", "evaluating", "exporting", "done", "failed"]


def say(text: str) -> None:
    print(" ".join(text.split()), flush=True)


def span(seconds: float) -> str:
    """A duration for humans, e.g. 1h02m, 1m20s or 7s."""
    whole = int(seconds + 0.5)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def curves(what: str, figures: ReturnEstimate) -> dict[str, float]:
    return {f"{what}/return_{name}": float(getattr(figures, name)) for name in ("mean", "iqm", "ci_low", "ci_high")}


class Speed:
    """Steps per second over the last half minute."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=64)

    def note(self, step: int) -> float:
        """Take a point, at most two a second; returns the present speed."""
        now = time.monotonic()
        if not self._points or now - self._points[-1][0] >= 0.5:
            self._points.append((now, step))
        first_time, first_step = self._points[0]
        return max(0, step - first_step) / (now - first_time) if now - first_time > 0.05 else 0.0


class Reporter:
    """The voice of one rank; only rank 0 sends heartbeats and progress lines."""

    def __init__(
        self,
        order: training_order.Order,
        place: training_order.Place,
        store: Store,
        tracker: tracking.Tracker | None = None,
    ) -> None:
        """Silent until `start`. `tracker`: where rank 0's curves go."""
        self._order, self._place, self._store = order, place, store
        self._tracker = tracker if tracker is not None and place.rank == 0 else tracking.Tracker(())
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._phase: Phase = "starting"
        self._message, self._busy, self._trouble, self._caution = "", "", "", ""
        self._step, self._rate = 0, 0.0
        self._losses: dict[str, float] = {}
        self._recent: ReturnEstimate | None = None
        self._trail: tuple[float, ...] = ()
        self._figures: dict[str, float] = {}
        self._points: list[CurvePoint] = []
        self._process, self._curve = tracking.ProcessFigures(thread_limits.cpu_quota()), tracking.LearningCurve()
        self._alive = self._line_at = self._estimated_at = time.monotonic()
        self._speed = Speed()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self, before: Heartbeat | None = None) -> None:
        """`before`: the newest one of an earlier attempt, whose curve goes on."""
        if before is not None:
            self._curve.resume(before.curve)
            self._points = before.curve
        if self._place.rank == 0:
            self._thread.start()

    def phase(self, phase: Phase, message: str = "") -> None:
        with self._lock:
            self._phase, self._message, self._busy, self._alive = phase, message, "", time.monotonic()
        say(f"rank {self._place.rank}/{self._place.size} {phase}{': ' + message if message else ''}")

    def alive(self, message: str | None = None) -> None:
        """The main thread lives; with a message, say what it is busy with, until the next step or phase."""
        with self._lock:
            self._alive = time.monotonic()
            self._busy = self._busy if message is None else message
        if message and time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            say(f"rank {self._place.rank}/{self._place.size} {message}")

    def reading(self, message: str) -> None:
        """The main thread reads what it learns from, which is work: a log may take minutes."""
        with self._lock:
            self._phase = "training" if self._phase == "starting" else self._phase
        self.alive(message)

    def warn(self, trouble: str) -> None:
        """Show this in every heartbeat until told otherwise; an empty text ends it."""
        with self._lock:
            self._trouble = trouble

    def caution(self, text: str) -> None:
        """Show this in every heartbeat that has no trouble to show."""
        with self._lock:
            self._caution = text

    def progress(
        self,
        step: int,
        returns: deque[float],
        losses: Mapping[str, float] | None = None,
        trail: Iterable[float] = (),
        points: Mapping[str, float] | None = None,
        figures: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """Training has come to `step`.

        `returns`: of the latest episodes; `losses`: of the newest update; `trail`: the returns in which the operator
        looks for anomalies; `points`: further curves, by name; `figures`: asked about once a second.
        """
        now = time.monotonic()
        self._losses = dict(losses) if losses else self._losses
        with self._lock:
            self._step, self._rate, self._alive, self._busy = step, self._speed.note(step), now, ""
        if now - self._estimated_at >= BEAT_SECONDS or self._recent is None:
            self._estimated_at = now
            recent = statistics.estimate(np.asarray(returns), self._order.spec.seed, resamples=200)
            if recent is not None and recent.episodes:
                self._curve.note(step, recent.mean, recent.ci_low, recent.ci_high)
            named = {name: value for name, value in {**self._losses, **(points or {})}.items() if name in FIGURES}
            values = {**named, **figures(), **self._process.look()}
            values = {name: value for name, value in values.items() if math.isfinite(value)}
            with self._lock:
                self._recent, self._trail = recent, tuple(trail)
                self._figures, self._points = values | self._curve.figures(), self._curve.thinned()
            curve = {f"train/loss_{name}": value for name, value in self._losses.items() if name not in values}
            curve |= {f"train/{name}": value for name, value in {**(points or {}), **values}.items()}
            if recent is not None:
                curve |= curves("train", recent) | {"train/steps_per_second": self._rate}
            if curve:
                self._tracker.note(step, curve)
        if self._place.rank == 0 and now - self._line_at >= LINE_SECONDS:
            self._line_at = now
            say(self.line())

    def line(self) -> str:
        total, recent = self._order.spec.total_steps, self._recent
        text = f"step {self._step}/{total} {min(100, 100 * self._step // total)}%"
        if recent is not None:
            text += f" return {recent.mean:.1f} [{recent.ci_low:.1f}, {recent.ci_high:.1f}]"
        if self._losses:
            text += " loss " + ", ".join(f"{name} {value:.3g}" for name, value in self._losses.items())
        eta = self._eta()
        return f"{text} {self._rate:.0f} steps/s" + (f" ETA {span(eta)}" if eta is not None else "")

    def _eta(self) -> float | None:
        left = max(0, self._order.spec.total_steps - self._step)
        return left / self._rate if self._rate > 0 else None

    def _beat(self) -> Heartbeat:
        with self._lock:
            return Heartbeat(
                job=self._order.job,
                agent=self._order.agent,
                attempt=self._order.attempt,
                phase=self._phase,
                step=self._step,
                total_steps=self._order.spec.total_steps,
                world_size=self._place.size,
                steps_per_second=self._rate,
                eta_seconds=self._eta() if self._phase in {"starting", "training"} else None,
                recent_return=self._recent,
                returns=list(self._trail),
                figures=self._figures,
                curve=self._points,
                message=self._current_message()[:1024],
                at=datetime.now(UTC),
            )

    def _current_message(self) -> str:
        if self._phase in {"done", "failed"}:
            return self._message
        return self._trouble or (self._phase == "training" and self._caution) or self._busy or self._message

    def _run(self) -> None:
        failing = False
        while not self._stop.is_set():
            if time.monotonic() - self._alive < SILENT_AFTER:
                problem = self._send()
                if problem and not failing:
                    say(f"heartbeats do not get through, training continues: {problem}")
                elif failing and not problem:
                    say("heartbeats get through again")
                failing = bool(problem)
            self._stop.wait(BEAT_SECONDS)

    def _send(self) -> str:
        try:
            self._store.heartbeat(self._beat())
        except TrainerError as error:
            return str(error)
        return ""

    def proven(self, proof: Proof) -> None:
        """The run's result, as the last points of its curves."""
        both = {"evaluation": proof.evaluation, "baseline": proof.baseline}
        measured = {what: figures for what, figures in both.items() if figures.episodes}
        values = {name: value for what, figures in measured.items() for name, value in curves(what, figures).items()}
        self._tracker.note(proof.step, values | {"wall_seconds": proof.wall_seconds})

    def finish(self, phase: Literal["done", "failed"], message: str) -> None:
        """Send the last heartbeat, if it goes through at the first attempt."""
        self._stop.set()
        self.phase(phase, message)
        self._tracker.finish("FINISHED" if phase == "done" else "FAILED")
        if self._place.rank == 0:
            if self._thread.is_alive():
                self._thread.join(timeout=3)
            self._send()
