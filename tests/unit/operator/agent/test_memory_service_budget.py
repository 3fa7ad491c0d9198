"""An agent's memory budget at a MemoryService: nothing is sent there, and the condition says who keeps it."""

from typing import Any

import pytest

from learnloop_api.kinds.learning_agent import LearningAgentSpec, LearningAgentStatus
from learnloop_api.wire.memory import MemoryBudget, MemoryUse
from learnloop_operator.agents.decide import decide
from learnloop_operator.agents.snapshot import MemoryHome
from learnloop_operator.agents.status import asks
from learnloop_operator.core.plan import Call, Plan

from .test_learning_agent import spec, world
from .test_memory_budget import BARE, BUDGET, PATH, WIRE, condition, use

URL = "http://m-memory.ns.svc:8080"
ELSEWHERE = {"memory": {"serviceRef": {"name": "m"}, "budget": BUDGET}}


def decided(home: MemoryHome, before: Any = BARE, **changes: Any) -> Plan:
    return decide(world(0, spec=spec(**ELSEWHERE), before=before, memory=home, **changes))


@pytest.mark.parametrize(
    ("home", "said"),
    [
        (MemoryHome(), ("Unknown", "MemoryServiceMissing")),
        (MemoryHome(True, URL), ("Unknown", "NotToldYet")),
        (MemoryHome(True, URL, True), ("True", "KeptByMemoryService")),
        (MemoryHome(True, URL, True, "lb"), ("True", "KeptByMemoryService")),
        (MemoryHome(True, URL, True, "la"), ("False", "NoRoom")),
        (MemoryHome(True, URL, True, "a"), ("False", "NoRoom")),
    ],
)
def test_the_condition_says_who_keeps_the_budget_and_the_data_plane_is_told_nothing(
    home: MemoryHome, said: tuple[str, str]
) -> None:
    plan = decided(home)
    found = condition(plan)
    assert (found["status"], found["reason"]) == said
    assert not [call for call in plan.calls if call.path == PATH]
    assert "memory" not in plan.status
    assert not asks(LearningAgentSpec.model_validate(spec(**ELSEWHERE)), status(plan))
    assert decided(home, plan.status).status == plan.status


def status(plan: Plan) -> LearningAgentStatus:
    return LearningAgentStatus.model_validate(plan.status)


def test_the_sentence_names_the_service_and_the_limits() -> None:
    said = condition(decided(MemoryHome(True, URL, True)))["message"]
    assert said == (
        "MemoryService m keeps it, or less where its agentBudget is smaller: at most 1000 memories, 1048576 bytes, "
        "400 episodic ones; how much of it is used is in that service's REST interface and metrics"
    )


def test_an_agent_that_moves_to_a_service_has_its_budget_at_the_data_plane_taken_back() -> None:
    home = MemoryHome(True, URL, True)
    here = decide(world(0, spec=spec(memory={"budget": BUDGET}), before=BARE, memory_use=use()))
    moved = LearningAgentSpec.model_validate(spec(**ELSEWHERE))
    assert asks(moved, status(here))
    away = decided(home, here.status, memory_problem="the data plane does not answer")
    assert condition(away)["reason"] == "DataPlaneUnavailable"
    assert asks(moved, status(away)), "still to be rolled back"
    left = MemoryUse(agent="la", own=WIRE, budget=WIRE, memories=500, bytes=1000)
    back = decided(home, away.status, memory_use=left)
    assert back.calls == (Call("DELETE", PATH),)
    assert condition(back)["reason"] == "KeptByMemoryService"
    assert not asks(moved, status(back))


def test_one_that_moves_back_has_it_put_again() -> None:
    there = decided(MemoryHome(True, URL, True))
    home = spec(memory={"budget": {"memories": 7}})
    assert asks(LearningAgentSpec.model_validate(home), status(there))
    back = decide(world(0, spec=home, before=there.status))
    assert back.calls == (Call("PUT", PATH, MemoryBudget(memories=7).model_dump(exclude_none=True)),)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_actors_have_a_token_of_their_own_for_that_service_alone(elsewhere: bool) -> None:
    wanted = spec(**({"memory": {"serviceRef": {"name": "m"}}} if elsewhere else {}))
    home = MemoryHome(True, URL, True) if elsewhere else None
    plan = decide(world(0, spec=wanted, before=BARE, memory=home))
    template = next(item for item in plan.apply if item["metadata"]["name"] == "la-actor")["spec"]["template"]["spec"]
    volume = next(item for item in template["volumes"] if item["name"] == "learnloop-token")
    sources = [item["serviceAccountToken"] for item in volume["projected"]["sources"] if "serviceAccountToken" in item]
    told = {item["path"]: item["audience"] for item in sources}
    assert told == {"token": "learnloop"} | ({"memory-token": "memory.learnloop.dev/ns/m"} if elsewhere else {})
    env = {item["name"]: item.get("value") for item in template["containers"][0]["env"]}
    mounted = "/var/run/secrets/learnloop.dev/memory-token"
    assert env.get("LEARNLOOP_MEMORY_TOKEN_FILE") == (mounted if elsewhere else None)
