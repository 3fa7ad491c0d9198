"""An agent's memory budget: put at the data plane once, removed with the spec, left to a MemoryService."""

import pytest

from learnloop_operator.agents.agent_snapshot import MemoryHome
from learnloop_operator.agents.decide_agent import decide
from learnloop_operator.core.plan import Call, Plan

from .test_learning_agent import situation, spec

BUDGET = {"memories": 1000, "size": "1Mi"}
PATH = "/api/v1/agents/la/memory-budget"
BARE = {"registered": "solving/r1"}
PUT = Call("PUT", PATH, {"memories": 1000, "bytes": 2**20})


def decided(before=BARE, memory=None, **changes) -> Plan:
    home = MemoryHome(True, "http://m-memory.ns.svc:8080") if memory and "serviceRef" in memory else None
    return decide(
        situation(0, spec=spec(**({"memory": memory} if memory else {})), before=before, memory=home, **changes)
    )


def budget_calls(plan: Plan) -> list[Call]:
    return [call for call in plan.calls if call.path == PATH]


def test_a_budget_is_put_once_and_again_when_it_changes_or_the_data_plane_forgot_the_agent() -> None:
    first = decided(memory={"budget": BUDGET})
    assert budget_calls(first) == [PUT]
    assert decided(first.status, {"budget": BUDGET}).calls == ()
    assert budget_calls(decided(first.status, {"budget": BUDGET}, stats=None)) == [PUT]
    fewer = decided(first.status, {"budget": {"memories": 1}})
    assert budget_calls(fewer) == [Call("PUT", PATH, {"memories": 1})]


@pytest.mark.parametrize("memory", [None, {"serviceRef": {"name": "m"}, "budget": BUDGET}])
def test_a_budget_that_left_the_data_plane_is_removed_there_even_when_it_was_away(memory) -> None:
    first = decided(memory={"budget": BUDGET})
    away = decided(first.status, memory, stats_problem="the data plane does not answer")
    assert away.calls == ()
    back = decided(away.status, memory)
    assert budget_calls(back) == [Call("DELETE", PATH)]
    assert decided(back.status, memory).calls == ()
    assert budget_calls(decided(back.status, {"budget": BUDGET})) == [PUT]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_actors_have_a_token_of_their_own_for_that_service_alone(elsewhere: bool) -> None:
    plan = decided(memory={"serviceRef": {"name": "m"}} if elsewhere else None)
    template = next(item for item in plan.apply if item["metadata"]["name"] == "la-actor")["spec"]["template"]["spec"]
    volume = next(item for item in template["volumes"] if item["name"] == "learnloop-token")
    sources = [item["serviceAccountToken"] for item in volume["projected"]["sources"] if "serviceAccountToken" in item]
    audiences = {item["path"]: item["audience"] for item in sources}
    expected = {"token": "learnloop"} | ({"memory-token": "memory.learnloop.dev/ns/m"} if elsewhere else {})
    assert audiences == expected
    env = {item["name"]: item.get("value") for item in template["containers"][0]["env"]}
    mounted = "/var/run/secrets/learnloop.dev/memory-token"
    assert env.get("LEARNLOOP_MEMORY_TOKEN_FILE") == (mounted if elsewhere else None)
