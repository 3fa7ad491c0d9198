"""The budgets of a MemoryService's agents: all in one ConfigMap, none in the pods' template."""

import json

from learnloop_api.wire.memory_budget import BUDGETS_KEY, AgentMemorySettings
from learnloop_operator.core.plan import Plan
from learnloop_operator.memory_services.decide_service import decide
from learnloop_operator.memory_services.service_snapshot import budgets_json, budgets_of

from .test_memory_service import situation


def agent(name: str, service: str | None = "mem", group: str | None = None, **budget) -> dict:
    memory = {"serviceRef": {"name": service}} if service else {}
    memory |= {"group": group} if group else {}
    return {"metadata": {"name": name}, "spec": {"memory": memory | ({"budget": budget} if budget else {})}}


def config_map(plan: Plan) -> dict:
    [made] = [dict(item) for item in plan.apply if item["kind"] == "ConfigMap"]
    return made


def test_of_all_agents_those_count_that_name_it_and_have_a_budget_or_a_group() -> None:
    agents = [
        agent("b", memories=20, size="1Mi"),
        agent("a", memories=10),
        agent("elsewhere", "other", memories=1),
        agent("at-home", None, memories=1),
        agent("unlimited"),
        agent("together", group="support"),
        agent("unreadable", memories="many"),
        {"metadata": {"name": "bare"}},
    ]
    assert budgets_of("mem", agents) == {
        "a": AgentMemorySettings(memories=10),
        "b": AgentMemorySettings(memories=20, bytes=2**20),
        "together": AgentMemorySettings(group="support"),
    }


def test_the_pods_read_a_directory_that_the_kubelet_keeps_up_to_date() -> None:
    [made] = [item for item in decide(situation()).apply if item["kind"] == "Deployment"]
    pod = made["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [path] = [item["value"] for item in container["env"] if item["name"] == "LEARNLOOP_AGENT_BUDGETS_FILE"]
    [mount] = [item for item in container["volumeMounts"] if path == f"{item['mountPath']}/{BUDGETS_KEY}"]
    assert "subPath" not in mount
    assert {"name": mount["name"], "configMap": {"name": "mem-budgets", "optional": True}} in pod["volumes"]


def test_whatever_holds_the_service_up_its_pods_go_on_hearing_of_budgets() -> None:
    plan = decide(
        situation(
            complaint='secret "mem-postgres" not found',
            database={"metadata": {}},
            budgets=budgets_json("ns", {"a": AgentMemorySettings(memories=3)}),
        )
    )
    assert json.loads(config_map(plan)["data"][BUDGETS_KEY])["agents"] == {"a": {"memories": 3}}
