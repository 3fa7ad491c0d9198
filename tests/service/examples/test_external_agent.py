"""The external agent: its own physics is CartPole's, and it plays against a real policy server."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gymnasium
import httpx
import numpy as np
import pytest

from testing.servers.ports import held_port

AGENT = Path(__file__).resolve().parents[3] / "examples" / "external-agent" / "agent.py"


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    specification = importlib.util.spec_from_file_location("external_agent", AGENT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with held_port() as number:
        yield number


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[str]:
    """A policy server with the uniform random policy."""
    folder = tmp_path_factory.mktemp("policy")
    url = f"http://127.0.0.1:{port}"
    arm = {"revision": "0a1b2c3d", "role": "stable", "weight": 100, "url": url}
    table = {"model_deployment": "balancer", "mode": "service", "generation": 1, "arms": [arm]}
    (folder / "routing.json").write_text(json.dumps(table))
    environment = {
        **os.environ,
        "LEARNLOOP_MODEL_DEPLOYMENT": "balancer",
        "LEARNLOOP_REVISION": "0a1b2c3d",
        "LEARNLOOP_MODEL_URI": "uniform://discrete/2?observations=4",
        "LEARNLOOP_ROUTING_FILE": str(folder / "routing.json"),
        "LEARNLOOP_TERMINATION_LOG": str(folder / "termination-log"),
        "LEARNLOOP_HOST": "127.0.0.1",
        "LEARNLOOP_PORT": str(port),
        "LEARNLOOP_DRAIN_SECONDS": "0",
    }
    process = subprocess.Popen([sys.executable, "-m", "learnloop_serving"], env=environment)
    try:
        deadline = time.monotonic() + 120
        while not ready(url):
            assert process.poll() is None, "the policy server ended"
            assert time.monotonic() < deadline, "the policy server does not get ready"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def test_its_own_physics_is_that_of_the_environment_it_is_trained_in(agent: ModuleType) -> None:
    balancer, reference = agent.Balancer(seed=1), gymnasium.make("CartPole-v1").unwrapped
    reference.reset(seed=1)
    balancer(None)
    reference.state = np.array(balancer.state)
    for step in range(200):
        ours = balancer(step * 7 % 2)
        expected, _, fallen, _, _ = reference.step(step * 7 % 2)
        np.testing.assert_allclose(ours.observation, expected, rtol=1e-5, atol=1e-5)
        assert ours.terminated == fallen
        if fallen:
            assert ours.success is False
            break


def test_it_plays_with_the_served_policy_and_needs_no_gymnasium(endpoint: str) -> None:
    block = "import sys; sys.modules['gymnasium'] = None; import runpy; sys.argv = sys.argv[1:]; "
    script = block + "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", script, str(AGENT), "--episodes", "2"],
        env={**os.environ, "LEARNLOOP_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2
    assert all("steps by 0a1b2c3d, return" in line for line in lines)
