"""`python -m bench.offline`: conservative and implicit Q-learning beside d3rlpy's, on the same logs, at equal work.

Both sides have the same transitions, updates, batches, networks, step size and discount, and play the same unseen
episodes greedily. A line for each run; the last line is one JSON object. A ratio is what ours returns more than the log
does, over what the library's returns more, of the means over the seeds; its interval resamples the seeds of both sides.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from bench.arguments import numbers
from bench.offline.tasks import BATCH, HIDDEN, RATE, TASKS, Task, logged, played
from learnloop_api.kinds.training.algorithm_blocks import field_name
from learnloop_api.wire.trajectory import Outcome, Step, Trajectory
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.export import OnnxPolicy
from learnloop_trainer.floating_point import settle
from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

EPISODES = 100
RESAMPLES = 2000
WHEN = "2026-01-01T00:00:00Z"
HERE = Path(__file__).parent


def written(task: Task, log: dict[str, NDArray[Any]], file: Path) -> None:
    """The log as the trainer reads it."""
    world = make(task.environment, Split.TRAINING, 0, range(1))
    action = log["action"] if world.bounds is None else world.bounds.scale(log["action"])
    world.close()
    lines, steps = list[str](), list[Step]()
    for at, last in enumerate(log["last"]):
        facts = {name: log[name][at].tolist() for name in ("observation", "reward", "terminated")}
        truncated = bool(last and not log["terminated"][at])
        facts |= {"action": action[at].tolist(), "log_prob": 0.0, "truncated": truncated}
        steps.append(Step.model_validate(facts))
        if last:
            names = {"trajectory_id": f"t{len(lines)}", "agent": "a", "episode_id": f"e{len(lines)}"}
            outcome = Outcome(status="completed", episode_return=0.0)
            whole = Trajectory(
                **names, policy_revision="0" * 8, started_at=WHEN, ended_at=WHEN, steps=steps, outcome=outcome
            )
            lines.append(whole.model_dump_json())
            steps = []
    file.write_text("\n".join(lines))


def ours(task: Task, file: Path, seed: int, folder: Path) -> dict[str, float]:
    """What the exported policy of a run returns, greedily."""
    os.environ["LEARNLOOP_STORE"] = f"file://{folder}"
    block = {"recording": file.as_uri(), "discount": task.discount, "hidden": HIDDEN, "batchSize": BATCH}
    block |= {"learningRate": RATE, "learningRateSchedule": "constant", **task.parameters}
    spec = {
        "algorithm": task.algorithm,
        field_name(task.algorithm): block,
        "seed": seed,
        "totalSteps": task.updates * BATCH,
        "data": {"environment": task.environment},
        "evaluation": {"episodes": 10},
        "gates": {"significant": False},
        "export": {"behaviour": {"kind": "greedy"}},
    }
    order, began = Order.model_validate({"job": f"{task.algorithm}-{seed}", "spec": spec}), time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        run(order, Place(), 1)
    seconds = time.perf_counter() - began
    manifest = DirectoryStore(folder, order.job).manifest()
    assert manifest is not None  # run returns when it is durable
    world = make(task.environment, Split.TRAINING, 0, range(1))
    body = Path(urlsplit(manifest.artifact_uri).path).read_bytes()
    policy = OnnxPolicy(body, world.observations, world.actions, continuous=world.bounds is not None)
    bounds = world.bounds
    world.close()

    def act(seen: NDArray[Any]) -> NDArray[Any]:
        done = policy.act(seen)
        return done if bounds is None else bounds.unscale(done)

    return {"return": played(task.environment, act, EPISODES, seed), "seconds": seconds}


def theirs(python: str, number: int, file: Path, seed: int) -> dict[str, float]:
    """The same of the library."""
    command = [python, "-m", "bench.offline.d3rlpy_peer", str(number), str(file), str(seed), str(EPISODES)]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1800, env={**os.environ, "PYTHONPATH": paths}
    )
    if done.returncode:
        raise RuntimeError(f"d3rlpy failed: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compared(own: list[float], peer: list[float], blind: float) -> dict[str, float]:
    """The ratio with its 95 % interval."""
    random, ratios = np.random.default_rng(0), list[float]()
    for _ in range(RESAMPLES):
        mine, other = random.choice(own, len(own)), random.choice(peer, len(peer))
        ratios.append(float((mine.mean() - blind) / (other.mean() - blind)))
    low, high = np.quantile(ratios, (0.025, 0.975))
    ratio = (np.mean(own) - blind) / (np.mean(peer) - blind)
    return {"ratio": round(float(ratio), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def main() -> None:
    """Print a line for each run, then all figures."""
    asked = numbers(__doc__, sys.argv[1:], seeds=3)
    settle(1)
    made = subprocess.run([HERE / "peer_venv", sys.executable], stdout=subprocess.PIPE, text=True, check=True)
    python, figures = made.stdout.strip(), dict[str, Any]()
    for number, task in enumerate(TASKS):
        with tempfile.TemporaryDirectory(prefix="bench-offline-") as name:
            folder, log = Path(name), logged(task)
            arrays: dict[str, Any] = dict(log)
            np.savez(folder / "log.npz", **arrays)
            written(task, log, folder / "log.jsonl")
            blind = float(log["reward"].sum() / task.episodes)
            sides: dict[str, list[dict[str, float]]] = {"ours": [], "d3rlpy": []}
            for seed in range(1, asked.seeds + 1):
                sides["ours"].append(ours(task, folder / "log.jsonl", seed, folder / f"store-{seed}"))
                sides["d3rlpy"].append(theirs(python, number, folder / "log.npz", seed))
                told = {side: {key: round(value, 2) for key, value in runs[-1].items()} for side, runs in sides.items()}
                print(f"{task.algorithm} on {task.environment}, seed {seed}: {json.dumps(told)}", flush=True)
        returns = {side: [one["return"] for one in runs] for side, runs in sides.items()}
        figures[f"{task.algorithm} {task.environment}"] = {
            "logged": round(blind, 2),
            **{f"{side}_return": [round(one, 2) for one in several] for side, several in returns.items()},
            **{f"{side}_seconds": round(float(np.median([r["seconds"] for r in sides[side]])), 1) for side in sides},
            **compared(returns["ours"], returns["d3rlpy"], blind),
        }
    print(json.dumps({"seeds": asked.seeds, "tasks": figures}))


if __name__ == "__main__":
    main()
