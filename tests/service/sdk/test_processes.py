"""The SDK across forks, threads, event loops and the ends of processes: nothing recorded is lost without a word."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from learnloop_api.wire.trajectory import Trajectory
from testing.servers.policy_servers import clean_environment
from testing.servers.recording_server import DataPlane

PREFACE = """
import asyncio, os, pathlib, sys, threading, time
from learnloop_sdk import Learnloop, LearnloopError, run

async def play(loop, count=1):
    for _ in range(count):
        async with loop.episode("t", external=True) as episode:
            episode.record(1, 1.0, terminated=True, observation=[0.0, 1.0])

def spool():
    return pathlib.Path(os.environ["SPOOL"]) if os.environ.get("SPOOL") else None
"""


def start(code: str, data_plane: DataPlane, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PREFACE + code],
        env=clean_environment(LEARNLOOP_DATA_URL=data_plane.url, LEARNLOOP_ENDPOINT="http://127.0.0.1:9", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def identities(data_plane: DataPlane) -> set[str]:
    return {Trajectory.model_validate_json(body).trajectory_id for body in data_plane.bodies()}


def test_one_learnloop_serves_one_event_loop_after_the_other(data_plane: DataPlane) -> None:
    code = """
loop = Learnloop("cart")
async def turn():
    await play(loop)
    assert await loop.flush(60) == 0
for _ in range(3):
    asyncio.run(turn())
"""
    process = start(code, data_plane)
    _, log = process.communicate(timeout=120)
    assert (process.returncode, len(identities(data_plane))) == (0, 3), log


@pytest.mark.parametrize("inside", [False, True], ids=["between event loops", "within a running event loop"])
def test_parent_and_child_of_a_fork_both_deliver(data_plane: DataPlane, inside: bool) -> None:
    """A child shares its parent's sockets and epoll instance: what it does with them must not reach the parent's."""
    forked = """
def fork():
    child = os.fork()
    if child == 0:
        done = 1
        try:
            async def turn():
                await play(loop, 2)
                return await loop.flush(60)
            done = run_apart(turn)
        finally:
            os._exit(done)
    return child

def run_apart(turn):
    result = []
    asyncio.events._set_running_loop(None)
    result.append(asyncio.new_event_loop().run_until_complete(turn()))
    return result[0]
"""
    within = """
loop = Learnloop("cart")
async def main():
    await play(loop, 2)
    assert await loop.flush(60) == 0
    child = fork()
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 0
    for _ in range(3):
        await play(loop)
        assert await loop.flush(60) == 0
    assert await loop.close() == 0
asyncio.run(main())
"""
    between = """
loop = Learnloop("cart")
async def main(count):
    await play(loop, count)
    assert await loop.flush(60) == 0
asyncio.run(main(2))
child = fork()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
asyncio.run(main(3))
"""
    process = start(forked + (within if inside else between), data_plane)
    _, log = process.communicate(timeout=120)
    assert (process.returncode, len(identities(data_plane))) == (0, 7), log


def test_a_second_event_loop_at_the_same_time_is_refused_with_the_fix(data_plane: DataPlane) -> None:
    code = """
loop, said = Learnloop("cart"), []
def other():
    try:
        asyncio.run(play(loop))
    except LearnloopError as error:
        said.append(str(error))
async def main():
    await play(loop)
    await asyncio.to_thread(other)
    assert await loop.close() == 0
asyncio.run(main())
print(said)
"""
    process = start(code, data_plane)
    out, log = process.communicate(timeout=120)
    assert process.returncode == 0, log
    assert "make one Learnloop for each thread" in out
    assert len(identities(data_plane)) == 2, "the first one delivers what the second one recorded"


def test_threads_with_a_learnloop_each_deliver(data_plane: DataPlane) -> None:
    code = """
async def main():
    async with Learnloop("cart") as loop:
        await play(loop, 3)
threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    process = start(code, data_plane)
    _, log = process.communicate(timeout=120)
    assert (process.returncode, len(identities(data_plane))) == (0, 12), log


LEFT = """
loop = Learnloop("cart", spool_directory=spool())
async def main():
    await play(loop, 3)
asyncio.run(main())
"""


def test_a_process_that_ends_without_close_says_what_is_lost(data_plane: DataPlane) -> None:
    data_plane.answers["/api/v1/trajectories"] = (503, b"")
    _, log = start(LEFT, data_plane).communicate(timeout=120)
    assert "3 were not delivered and are lost: use `async with Learnloop" in log


ENDLESS = """
async def main():
    async with Learnloop("cart", spool_directory=spool()) as loop:
        while True:
            await play(loop)
            print(loop.counters.trajectories_recorded, flush=True)
            await asyncio.sleep(0.01)
run(main())
"""


def until(process: "subprocess.Popen[str]", enough: Callable[[str], bool]) -> int:
    for line in process.stdout:
        if enough(line):
            return int(line)
    raise AssertionError("the agent ended")


def test_sigterm_ends_an_agent_that_delivers_what_waits(data_plane: DataPlane) -> None:
    data_plane.answers["/api/v1/trajectories"] = (503, b"")
    process = start(ENDLESS, data_plane)
    recorded = until(process, lambda line: int(line) >= 20)
    process.send_signal(signal.SIGTERM)
    data_plane.answers.clear()
    out, log = process.communicate(timeout=120)
    recorded = max([recorded, *map(int, out.split())])
    assert process.returncode == 0, log
    assert len(identities(data_plane)) == recorded


def test_kill_9_loses_no_episode_that_ended(data_plane: DataPlane, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    data_plane.answers["/api/v1/trajectories"] = (503, b"")
    process = start(ENDLESS, data_plane, SPOOL=str(folder))
    recorded = until(process, lambda line: int(line) >= 20)
    process.kill()
    process.communicate(timeout=120)
    data_plane.answers.clear()
    data_plane.posts.clear()
    process = start(ENDLESS, data_plane, SPOOL=str(folder))
    deadline = time.monotonic() + 60
    while len(data_plane.bodies()) < recorded and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert len(identities(data_plane)) >= recorded
    assert len(data_plane.bodies()) == len({json.loads(body)["trajectory_id"] for body in data_plane.bodies()})
