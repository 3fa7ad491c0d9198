"""The console's reads of a data plane are there, in the form in which its pages show it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from learnloop_operator.cli.console.orders import Records
from learnloop_operator.cli.data_plane_access import DataPlaneAccess
from learnloop_operator.cli.objects import CommandError
from testing.browsers.console_server import WrittenCluster
from testing.browsers.example_loop import ExampleLoop
from testing.servers.data_plane_server import listening

from ..conftest import NOW, POLICY, trajectory

SECONDS = 60.0
EXAMPLE = ExampleLoop(NOW).records()


class Forwarding(WrittenCluster):
    """A cluster whose data plane is at this URL."""

    def __init__(self, url: str) -> None:
        super().__init__("team-a")
        self.url = url

    def forward(self, service: str) -> Callable[..., tuple[int, str]]:
        def send(method: str, path: str, query, headers, body, seconds: float) -> tuple[int, str]:
            answer = httpx.request(
                method, self.url + path, params=query, headers=headers, json=body, timeout=seconds, trust_env=False
            )
            return answer.status_code, answer.text

        return send


class Plane:
    """The console's reads of namespace team-a, and the API behind them."""

    def __init__(self, url: str) -> None:
        access = DataPlaneAccess(Forwarding(url))
        self.url, self.records = url, Records(access)

    def send(self, method: str, path: str, body=None) -> None:
        headers = {"x-learnloop-namespace": "team-a"}
        answer = httpx.request(
            method, f"{self.url}{path}", headers=headers, json=body, trust_env=False, timeout=SECONDS
        )
        assert answer.status_code < 300, answer.text

    def read(self, what: str, **query: str):
        return self.records.read(what, {"agent": "walker", **query})


@pytest.fixture(scope="module")
def plane(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with listening(dsn, Path(tmp_path_factory.mktemp("artifacts")), sweep_seconds=0.2) as url:
        client = Plane(url)
        client.send("PUT", "/api/v1/rewards/policies/good/revisions/r1", POLICY)
        client.send("PUT", "/api/v1/agents/walker", {"reward_policy": "good", "reward_policy_revision": "r1"})
        for number in range(30):
            client.send("POST", "/api/v1/trajectories", trajectory(f"t-{number:02d}", episode_return=float(number)))
        for text in ("Stairs: shorten the step.", "The left hip saturates."):
            memory = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": text}}
            client.send("POST", "/api/v1/memory/store", memory)
        deadline = time.monotonic() + SECONDS
        while len(client.read("rewards")["rewards"]) < 30:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield client


def test_rewards_have_components_the_model_and_the_moment(plane: Plane) -> None:
    first = plane.read("rewards")["rewards"][0]
    assert set(EXAMPLE["/api/v1/rewards/history"]["rewards"][0]) <= set(first)
    assert (first["metadata"]["policy_revision"], set(first["components"])) == ("3f9a2c81", {"return", "success"})


def test_an_episode_is_found_on_a_later_page_with_its_credits(plane: Plane) -> None:
    episode = plane.read("episode", trajectory="t-03")
    assert set(EXAMPLE["/api/v1/experience/trajectories"]["trajectories"][0]) <= set(episode["episode"])
    assert (episode["episode"]["episode_return"], len(episode["credits"]["credits"])) == (3.0, 3)
    with pytest.raises(CommandError, match="'t-99' is not among the newest 500 episodes of walker"):
        plane.read("episode", trajectory="t-99")


def test_memories_and_a_recall_come_with_a_word_why(plane: Plane) -> None:
    memories = plane.read("memories")
    assert set(EXAMPLE["/api/v1/memory/entries"]["memories"][0]) <= set(memories["memories"][0])
    recalled = plane.read("recall", context="stairs ahead")["memories"]
    assert recalled[0]["content"]["text"] == "Stairs: shorten the step."
    assert recalled[0]["why"] == "words"


def test_the_newest_records_of_the_audit_chain_are_read(plane: Plane) -> None:
    records = plane.read("audit")["records"]
    assert set(EXAMPLE["/api/v1/audit/records"]["records"][0]) <= set(records[0])
    assert {"reward.policy.published"} <= {record["action"] for record in records}


def test_what_is_not_there_is_said_in_the_data_planes_words(plane: Plane) -> None:
    assert plane.read("deployed", deployment="walker")["deployed"] == []
    assert plane.read("progress")["weeks"] is not None
    with pytest.raises(CommandError, match="walker-9"):
        plane.read("run", job="walker-9")
