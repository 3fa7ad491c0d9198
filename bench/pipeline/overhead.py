"""`python -m bench.pipeline.overhead [ROUNDS]`: what recording costs an agent at each step.

Three agents play CartPole-v1 against the same policy server, turn by turn: `bare` speaks the server's protocol over one
keep-alive connection of the standard library; `acting` uses the SDK and records nothing, not even for itself;
`learning` uses the SDK and records every episode, redacted, by HTTP. The step is observation, request, answer,
environment. Overheads are ratios of step times, formed round by round: wall, and (`cpu`) processor time of the agent's
own process, all of its threads together.

Each round of `learning` ends with a flush, and waits for the last acknowledgements as an agent does once in its life;
`busy` is the wall time without that wait, but with whatever the process did meanwhile. `record_us_per_call` is what the
agent's thread spends in `record` itself, alone and warm.

All of it is measured twice. `elsewhere`: agent and policy server on one core, the platform that stores and rewards what
is learned from (data plane, PostgreSQL, NATS) on the other ones, as in a cluster, where it is on other machines: what
learning costs the agent. `same_cores`: everybody on all cores, so the platform's work counts as the agent's. The target
is for `elsewhere`, against `acting`; `bare` shows what aiohttp costs more than the standard library, some 80 µs of
processor time a step. CartPole's step is about the shortest there is, a request and 20 µs of environment, and no client
meets the target there: `recording_us_per_step` is the cost in absolute terms (processor time, its share of the
episode's end included), and `within_target_from_us_per_step` the step length from which it is at most 5 %.
`steps_of_1_ms` and `steps_of_10_ms` are the same agents in an environment that takes so much longer, as most do. The
last line is one JSON object.
"""

import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from bench.arguments import numbers
from bench.pipeline.chaos import register
from bench.pipeline.world import pipeline, wait_for_port
from learnloop_api.wire.routing import Arm, RoutingTable
from learnloop_api.wire.trajectory import MAX_STEPS
from learnloop_sdk import Learnloop

ROUNDS, EPISODES = 15, 40
# Milliseconds more that a step takes, with how many rounds and episodes that is measured.
LONGER_STEPS = ((1.0, 7, 16), (10.0, 5, 4))
RECORD_ROUNDS = 5
REVISION = "00000001"
TARGET, STEP_US = 0.05, 1000.0


def served(directory: Path, port: int) -> subprocess.Popen[bytes]:
    """A policy server of its own process, in service mode, with a policy that draws actions at random."""
    url = f"http://127.0.0.1:{port}"
    arm = Arm(revision=REVISION, role="stable", weight=100, url=url)
    table = directory / "routing.json"
    table.write_text(RoutingTable(model_deployment="cart", generation=1, arms=[arm]).to_json())
    values = {
        "LEARNLOOP_MODEL_DEPLOYMENT": "cart",
        "LEARNLOOP_REVISION": REVISION,
        "LEARNLOOP_MODEL_URI": "uniform://discrete/2?observations=4",
        "LEARNLOOP_ROUTING_FILE": str(table),
        "LEARNLOOP_TERMINATION_LOG": str(directory / "end"),
        "LEARNLOOP_HOST": "127.0.0.1",
        "LEARNLOOP_PORT": str(port),
    }
    command = [sys.executable, "-m", "learnloop_serving"]
    return subprocess.Popen(command, env=os.environ | values, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


Clock = tuple[float, float]  # seconds: wall, and processor time of this process


class Taken(NamedTuple):
    """Seconds of a step, each kind with the suffix of its figures' names."""

    wall: float
    cpu: float
    busy: float


SUFFIXES = {"wall": "", "cpu": "_cpu", "busy": "_busy"}


def clock() -> Clock:
    """Now."""
    return time.perf_counter(), time.process_time()


def per_step(started: Clock, steps: int, waited: float = 0.0) -> Taken:
    """Seconds of one of `steps` steps since then; `waited`: seconds of it for the last acknowledgements."""
    wall, processor = clock()
    return Taken((wall - started[0]) / steps, (processor - started[1]) / steps, (wall - started[0] - waited) / steps)


class Longer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps take so many milliseconds more, in a simulator or a tool that is waited for."""

    def __init__(self, world: Any, milliseconds: float) -> None:
        super().__init__(world)
        self._seconds = milliseconds / 1000

    def step(self, action: Any) -> Any:
        """See gymnasium.Env."""
        time.sleep(self._seconds)
        return self.env.step(action)


def bare(port: int, world: Any, episodes: int) -> Taken:
    """Seconds a step takes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def post(path: str, body: dict[str, Any]) -> Any:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        return json.loads(connection.getresponse().read() or b"null")

    steps, started = 0, clock()
    for seed in range(episodes):
        observation, _ = world.reset(seed=seed)
        opened, over, total = post("/v1/episodes", {"task": "t"}), False, 0.0
        path = f"/v1/episodes/{opened['episode_id']}"
        while not over:
            action = post(f"{path}/act", {"observation": observation.tolist(), "explore": True})["action"]
            observation, reward, terminated, truncated, _ = world.step(int(action))
            over, total, steps = terminated or truncated, total + float(reward), steps + 1
        post(f"{path}/end", {"status": "completed", "episode_return": total, "steps": steps})
    connection.close()
    return per_step(started, steps)


async def with_sdk(loop: Learnloop, world: Any, episodes: int, *, records: bool) -> Taken:
    """Seconds a step takes, what goes on in the background included: nothing is left to be delivered at the end."""
    steps, started = 0, clock()
    for seed in range(episodes):
        observation, _ = world.reset(seed=seed)
        async with loop.episode("t") as episode:
            over = False
            while not over:
                action = await episode.act(observation)
                observation, reward, terminated, truncated, _ = world.step(int(action))
                over, steps = terminated or truncated, steps + 1
                if records:
                    episode.record(action, float(reward), terminated=terminated, truncated=truncated)
    ending = clock()
    await loop.flush(30)
    ended = clock()
    waited = (ended[0] - ending[0]) - (ended[1] - ending[1])
    return per_step(started, steps, max(0.0, waited))


async def record_us(loop: Learnloop) -> float:
    """Microseconds of the agent's thread for one call of `record`, with what `act` keeps for it."""
    best = float("inf")
    for _ in range(RECORD_ROUNDS):
        async with loop.episode("t", external=True) as episode:
            started = time.thread_time()
            for _ in range(MAX_STEPS):
                episode.record(1, 1.0, observation=[0.1, 0.2, 0.3, 0.4])
            best = min(best, time.thread_time() - started)
        await loop.flush(30)
    return best / MAX_STEPS * 1e6


async def measure(port: int, data_url: str, rounds: int, *, longer: bool) -> dict[str, Any]:
    """All three in turn, `rounds` times; then, if so asked, with longer steps."""
    world = gymnasium.make("CartPole-v1")
    url = f"http://127.0.0.1:{port}"
    async with Learnloop("cart", url) as acting, Learnloop("cart", url, data_url=data_url) as learning:

        async def played(world: Any, rounds: int, episodes: int) -> dict[str, Any]:
            times: dict[str, list[Taken]] = {"bare": [], "acting": [], "learning": []}
            for number in range(-1, rounds):  # the first one warms up
                taken = {
                    "bare": bare(port, world, episodes),
                    "acting": await with_sdk(acting, world, episodes, records=False),
                    "learning": await with_sdk(learning, world, episodes, records=True),
                }
                if number >= 0:
                    for name, value in taken.items():
                        times[name].append(value)
            return summed(times)

        figures = await played(world, rounds, EPISODES)
        for milliseconds, some, episodes in LONGER_STEPS if longer else ():
            some = min(rounds, some)
            figures[f"steps_of_{milliseconds:g}_ms"] = await played(Longer(world, milliseconds), some, episodes)
        figures["record_us_per_call"] = round(await record_us(learning), 2)
        counters = learning.counters
    left = counters.trajectories_recorded - counters.trajectories_delivered
    return figures | {"episodes_delivered": counters.trajectories_delivered, "episodes_left": left}


def summed(times: dict[str, list[Taken]]) -> dict[str, Any]:
    """Medians and quartiles."""
    figures: dict[str, Any] = {}
    for what, kind in SUFFIXES.items():
        for name, taken in times.items():
            figures[f"{name}{kind}_us_per_step"] = round(
                statistics.median(getattr(one, what) for one in taken) * 1e6, 1
            )
        for base in ("bare", "acting"):
            pairs = zip(times["learning"], times[base], strict=True)
            low, middle, high = statistics.quantiles(
                [getattr(one, what) / getattr(other, what) - 1 for one, other in pairs], n=4
            )
            figures[f"overhead{kind}_over_{base}"] = round(middle, 4)
            figures[f"overhead{kind}_over_{base}_quartiles"] = [round(low, 4), round(high, 4)]
    pairs = zip(times["learning"], times["acting"], strict=True)
    cost = statistics.median(one.cpu - other.cpu for one, other in pairs) * 1e6
    figures["recording_us_per_step"] = round(cost, 1)
    figures["within_target_from_us_per_step"] = round(cost / TARGET)
    return figures


def placed(rounds: int, agents_cores: set[int], platforms_cores: set[int], *, longer: bool) -> dict[str, Any]:
    """The figures with agent and policy server on those cores, and the platform on these."""
    everywhere = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, platforms_cores)  # children inherit it
        with pipeline() as (product, _, _), tempfile.TemporaryDirectory(prefix="learnloop-overhead-") as name:
            register(product)
            os.sched_setaffinity(0, agents_cores)
            port = product.port + 1 if product.port < 65535 else product.port - 1
            server = served(Path(name), port)
            try:
                wait_for_port(port)
                return asyncio.run(measure(port, product.url, rounds, longer=longer))
            finally:
                server.terminate()
                server.wait(20)
    finally:
        os.sched_setaffinity(0, everywhere)


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when an episode was not delivered, or learning costs more than 5 % of a step of a
    millisecond, the platform being elsewhere."""
    rounds = numbers(__doc__, arguments, rounds=ROUNDS).rounds
    first, *others = sorted(os.sched_getaffinity(0))
    result: dict[str, Any] = {"bench": "overhead", "rounds": rounds, "cores": 1 + len(others), "target": TARGET}
    if others:
        result["elsewhere"] = placed(rounds, {first}, set(others), longer=True)
        print(f"[overhead] elsewhere: {json.dumps(result['elsewhere'])}", file=sys.stderr, flush=True)
    result["same_cores"] = placed(rounds, {first, *others}, {first, *others}, longer=not others)
    judged = result.get("elsewhere", result["same_cores"])
    result["met"] = judged["within_target_from_us_per_step"] <= STEP_US and judged["episodes_left"] == 0
    print(json.dumps(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
