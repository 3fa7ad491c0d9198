"""`approve --reference`: decides about what the message was about, or not at all."""

import json
from typing import Any

import pytest

from learnloop_operator.cli.objects import CommandError
from testing.command_line import typed

ASKED = "2026-01-31T12:00:00Z"


class World:
    """A cluster with one rollout that waits, and a data plane."""

    namespace = "team-a"

    def __init__(self, revision: str = "3f9a2c81", step: int | None = 2, since: str | None = ASKED) -> None:
        self.about = {"revision": revision, "step": step, "since": since}
        self.gates: dict[str, str] = {}
        self.written: list[Any] = []

    def get(self, plural: str, name: str) -> Any:
        status = {"phase": "Paused", "canary": {"revision": "3f9a2c81"}, "step": 1, "stepText": "2/4", "weight": 25}
        paused = {"type": "Paused", "status": "True", "lastTransitionTime": ASKED}
        status |= {"conditions": [paused], "gates": self.gates}
        return {"metadata": {"name": name}, "spec": {}, "status": status}

    def annotate(self, plural: str, name: str, values: Any) -> None:
        self.written.append(values)

    def user(self) -> str:
        return "alice"

    def token(self, account: str, audience: str) -> str:
        return "token"

    def forward(self, service: str) -> Any:
        def send(method: str, path: str, query: Any, headers: Any, body: Any, seconds: float) -> tuple[int, str]:
            assert (method, path) == ("POST", "/api/v1/models/walker/approval-reference")
            if body != {"reference": "good"}:
                return 422, json.dumps({"error": {"message": "it expired", "field": "reference"}})
            return 200, json.dumps(self.about)

        return send


def run(world: World, verb: str, *arguments: str) -> str:
    return typed(world, verb, "walker", *arguments)


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_the_decision_is_the_callers_own_whatever_the_reference_says(verb: str) -> None:
    world = World()
    run(world, verb, "--reference", "good")
    assert len(world.written) == 1
    assert "3f9a2c81/2 at " in str(world.written)
    assert " by alice" in str(world.written)


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize(("revision", "step"), [("bad0bad0", 2), ("3f9a2c81", 1), ("3f9a2c81", None)])
def test_nothing_else_is_decided_than_the_message_was_about(verb: str, revision: str, step: int | None) -> None:
    world = World(revision, step)
    with pytest.raises(CommandError, match="--reference: it is about"):
        run(world, verb, "--reference", "good")
    with pytest.raises(CommandError, match="reference: it expired"):
        run(world, verb, "--reference", "old")
    assert world.written == []


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_message_about_an_earlier_try_of_the_same_step_decides_nothing(verb: str) -> None:
    world = World(since="2026-01-30T12:00:00Z")
    with pytest.raises(CommandError, match=r"--reference: it is from 2026-01-30.* asked again at"):
        run(world, verb, "--reference", "good")
    world = World(step=None, since="2026-01-31T12:00:00Z")
    world.gates = {"phase": "AwaitingApproval", "revision": "3f9a2c81", "judgedAt": "2026-01-31T12:00:01Z"}
    with pytest.raises(CommandError, match="asked again at"):
        run(world, verb, "--reference", "good")
    assert world.written == []


def test_a_reference_of_an_older_data_plane_says_nothing_of_when() -> None:
    world = World(since=None)
    run(world, "approve", "--reference", "good")
    assert len(world.written) == 1
