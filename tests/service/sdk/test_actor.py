"""The actor as its pod runs it, against a real policy server."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop_api.wire.trajectory import Trajectory
from testing.servers.policy_servers import LiveServer, clean_environment, table
from testing.servers.recording_server import DataPlane


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """Stable, and alone."""
    running = LiveServer().start()
    running.route(table((running.revision, "stable", 100, running.url)))
    yield running
    running.stop()


def test_the_actor_plays_its_episodes_and_delivers_them(server: LiveServer, data_plane: DataPlane) -> None:
    done = _actor(server, data_plane, EPISODES="6", CONCURRENCY="3", SUCCESS_RETURN="5")
    out, _ = done.communicate(timeout=120)
    line = json.loads(out.splitlines()[-1])
    assert (done.returncode, line["episodes"], line["trajectories_delivered"]) == (0, 6, 6)
    assert len(data_plane.bodies()) == 6
    assert Trajectory.model_validate_json(data_plane.bodies()[0]).outcome.success is True


def test_the_actor_delivers_what_it_has_on_sigterm(server: LiveServer, data_plane: DataPlane) -> None:
    actor = _actor(server, data_plane)
    deadline = time.monotonic() + 120
    while not data_plane.bodies() and time.monotonic() < deadline:
        time.sleep(0.02)
    actor.send_signal(signal.SIGTERM)
    out, _ = actor.communicate(timeout=120)
    line = json.loads(out.splitlines()[-1])
    assert actor.returncode == 0
    assert line["trajectories_recorded"] == line["trajectories_delivered"] == len(data_plane.bodies())
    assert line["pending_trajectories"] == 0


BROKEN = """
import gymnasium

class Rooms(gymnasium.Env):
    metadata = {}
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return {}["thermometer"]
"""


def test_an_actor_says_which_exception_stopped_it(server: LiveServer, data_plane: DataPlane, tmp_path: Path) -> None:
    (tmp_path / "rooms.py").write_text(BROKEN)
    actor = _actor(
        server,
        data_plane,
        environment="rooms:Rooms",
        LEARNLOOP_ENVIRONMENT_DIRECTORY=str(tmp_path),
        LEARNLOOP_TERMINATION_LOG=str(tmp_path / "message"),
    )
    _, log = actor.communicate(timeout=120)
    line = (
        "spec.data.environment: 'rooms:Rooms' raised KeyError: 'thermometer' in step, call 3; correct the environment"
    )
    assert actor.returncode == 1
    assert log.splitlines()[-1].endswith(line)
    assert (tmp_path / "message").read_text() == f"the actor stops: {line}\n"


def _actor(
    server: LiveServer, data_plane: DataPlane, environment: str = "CartPole-v1", **options: str
) -> "subprocess.Popen[str]":
    given = {"ENVIRONMENT": environment, "AGENT": "cart", **options}
    variables = {name if name.startswith("LEARN") else f"LEARNLOOP_ACTOR_{name}": text for name, text in given.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "learnloop_sdk.environment_actor"],
        env=clean_environment(LEARNLOOP_ENDPOINT=server.url, LEARNLOOP_DATA_URL=data_plane.url, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
