"""Keeps what a picture of the run needs: return, weight and rollbacks over time, as the cluster tells them."""

import threading
import time
from dataclasses import dataclass, field

from demo.api import Api, Json
from demo.counters import episode_counters
from demo.settings import Settings

EVERY_SECONDS = 1.0
_GAIN, _LOSS = "learnloop_episode_return_gain_total", "learnloop_episode_return_loss_total"
_ENDED = "learnloop_episodes_ended_total"


@dataclass(frozen=True)
class Sample:
    """One look. `episodes` ended since the look before, with returns that add up to `returns`."""

    seconds: float
    episodes: float
    returns: float
    weight: int
    phase: str
    training: bool


@dataclass
class Recorder:
    """A thread that looks once a second until the block ends. A look that fails is left out."""

    api: Api
    settings: Settings
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = 0.0
        self._ended = threading.Event()
        self._before: dict[tuple[str, ...], float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Recorder":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=15)

    def _run(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            deployment = self.api.custom(self.settings.namespace, "modeldeployments", self.settings.agent)
            if deployment is not None:
                self.samples.append(self._look(deployment.get("status") or {}))

    def _look(self, status: Json) -> Sample:
        grown = dict.fromkeys((_ENDED, _GAIN, _LOSS), 0.0)
        for item in episode_counters(self.api, self.settings.namespace, self.settings.agent):
            counts = item.metric in grown and item.labels.get("outcome") != "withdrawn"
            if counts:
                key = (item.pod, item.metric, item.labels.get("outcome", ""))
                grown[item.metric] += max(0.0, item.value - self._before.get(key, 0.0))
                self._before[key] = item.value
        jobs = (self.api.custom(self.settings.namespace, "trainingjobs") or {}).get("items", [])
        return Sample(
            seconds=time.monotonic() - self._began,
            episodes=grown[_ENDED],
            returns=grown[_GAIN] - grown[_LOSS],
            weight=int(status.get("weight") or 0) if status.get("canary") else 0,
            phase=str(status.get("phase") or ""),
            training=any((job.get("status") or {}).get("phase") in ("Running", "Training") for job in jobs),
        )
