"""One run as processes: a learner, and as many samplers beside it as are asked for."""

import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.actors.slow_world import STEP_SECONDS
from learnloop_api.wire.training import Heartbeat, Manifest
from testing.servers.ports import held_port

WORLD = "bench.actors.slow_world:SlowCartPole"
SECONDS = 900


@dataclass(frozen=True, slots=True)
class Result:
    """What one run came to."""

    samplers: int  # 0: the learner played itself
    steps_per_second: float  # from the first steps learned from to the last
    episode_return: float  # mean, of the exported policy on held-out episodes; NaN where nobody asked
    staleness: float
    dropped_share: float
    cpu_seconds: float  # of the learner and its samplers, the start included


def order(steps: int, samplers: int, each: int, seed: int, ppo: dict[str, Any], episodes: int) -> str:
    """LEARNLOOP_TRAINING_SPEC; an update has as many steps with samplers as without."""
    spec: dict[str, Any] = {
        "algorithm": "ppo",
        "totalSteps": steps,
        "seed": seed,
        "ppo": ppo,
        "data": {"environment": WORLD},
        "evaluation": {"episodes": episodes},
        "checkpoint": {"everySeconds": 3600},
    }
    if samplers:
        spec["samplers"] = {"count": samplers, "environments": each}
    return json.dumps({"job": "bench", "spec": spec})


def play(
    steps: int,
    samplers: int,
    *,
    each: int = 1,
    seconds_a_step: float,
    seed: int = 0,
    ppo: dict[str, Any],
    episodes: int = 20,
    proven: bool = True,
) -> Result:
    """Train, with samplers of `each` environments.

    Without `proven` the run is stopped before it is evaluated, which takes long where steps do.
    """
    with tempfile.TemporaryDirectory() as folder, held_port() as port:
        key = Path(folder, "key")
        key.write_text(secrets.token_hex(32))
        environ = os.environ | {
            "LEARNLOOP_TRAINING_SPEC": order(steps, samplers, each, seed, ppo, episodes),
            "LEARNLOOP_STORE": f"file://{folder}/store",
            "LEARNLOOP_SAMPLERS_KEY_FILE": str(key),
            "LEARNLOOP_SAMPLERS_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            STEP_SECONDS: str(seconds_a_step),
        }
        log = Path(folder, "log").open("w")  # noqa: SIM115
        before = _children_seconds()
        command = [sys.executable, "-m", "learnloop_trainer"]

        def start(number: int) -> subprocess.Popen[bytes]:
            mine = {"LEARNLOOP_TERMINATION_LOG": f"{folder}/ended-{number}"}
            mine |= {"LEARNLOOP_LEARNER": f"127.0.0.1:{port}"} if number else {}
            return subprocess.Popen(command, env=environ | mine, stdout=log, stderr=log)

        processes = [start(number) for number in range(samplers + 1)]
        run = Path(folder, "store/runs/bench")
        try:
            speed, beat = _speed(run / "heartbeat.json", processes[0], steps, proven)
            mean = float("nan")
            if proven:
                if processes[0].wait(SECONDS):
                    raise RuntimeError(Path(folder, "log").read_text()[-2000:])
                mean = Manifest.model_validate_json((run / "manifest.json").read_text()).evaluation.mean
        finally:
            for process in processes:
                process.kill()
                process.wait()
            log.close()
        dropped = beat.figures.get("dropped_steps", 0.0)
        staleness, used = beat.figures.get("staleness", 0.0), _children_seconds() - before
        return Result(samplers, speed, mean, staleness, dropped / max(1, beat.step + dropped), used)


def _children_seconds() -> float:
    """User and system time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _speed(path: Path, learner: subprocess.Popen[bytes], steps: int, proven: bool) -> tuple[float, Heartbeat]:
    """Steps a second between the first heartbeat that has some and the last; what that one said."""
    first: Heartbeat | None = None
    last: Heartbeat | None = None
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and learner.poll() is None:
        time.sleep(0.05)
        if not path.exists():
            continue
        beat = Heartbeat.model_validate_json(path.read_text())
        if beat.phase == "training" and beat.step:
            first = first or beat
            last = beat if last is None or beat.step > last.step else last
        over = beat.phase not in ("starting", "training")
        if over or (not proven and beat.step >= steps):
            break
    if first is None or last is None or last.step == first.step:
        raise RuntimeError("the run was over before its speed could be seen")
    return (last.step - first.step) / (last.at - first.at).total_seconds(), last
