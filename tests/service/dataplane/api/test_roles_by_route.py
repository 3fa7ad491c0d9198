"""The routes of an agent, and the right that each other one takes: a new route has to be written down here."""

import pytest

from learnloop_api import names
from learnloop_dataplane.access.tokens import OPEN, Bearer
from testing.servers.token_issuer import Cluster

from ..conftest import Api
from .test_every_route import FOR_ANYBODY, Route, filled, routes

RIGHTS: dict[Route, str] = {
    ("PUT", "/api/v1/agents/{agent}"): "update agents",
    ("DELETE", "/api/v1/agents/{agent}"): "delete agents",
    ("PUT", "/api/v1/agents/{agent}/memory-budget"): "update memorybudgets",
    ("DELETE", "/api/v1/agents/{agent}/memory-budget"): "delete memorybudgets",
    ("PUT", "/api/v1/agents/{agent}/training-orders/{order}"): "update deployments",
    ("PUT", "/api/v1/rewards/policies/{name}/revisions/{revision}"): "update rewardpolicies",
    ("POST", "/api/v1/memory/delete"): "delete memories",
    ("POST", "/api/v1/memory/forget"): "delete memories",
    ("POST", "/api/v1/memory/origins"): "update memories",
    ("PUT", "/api/v1/training/runs/{job}/status"): "update runs",
    ("PUT", "/api/v1/training/runs/{job}/update"): "update runs",
    ("DELETE", "/api/v1/training/runs/{job}"): "delete runs",
    ("PUT", "/api/v1/training/studies/{job}"): "update studies",
    ("DELETE", "/api/v1/training/studies/{job}"): "delete studies",
    ("PUT", "/api/v1/training/studies/{job}/trials/{number}"): "update studies",
    ("PUT", "/api/v1/training/studies/{job}/trials/{number}/progress"): "update studies",
    ("PUT", "/api/v1/training/studies/{job}/trials/{number}/result"): "update studies",
    ("PUT", "/api/v1/users/{user_id}/opt-out"): "update people",
    ("DELETE", "/api/v1/users/{user_id}/opt-out"): "update people",
    ("POST", "/api/v1/erasure"): "delete people",
    ("DELETE", "/api/v1/models/{deployment}"): "update deployments",
    ("PUT", "/api/v1/models/{deployment}/rolled-back"): "update deployments",
    ("PUT", "/api/v1/models/{deployment}/deployed"): "update deployments",
    ("PUT", "/api/v1/models/{deployment}/awaited-approval"): "update deployments",
    ("DELETE", "/api/v1/models/{deployment}/awaited-approval"): "update deployments",
    ("PUT", "/api/v1/models/{deployment}/decisions/{decision}"): "update deployments",
    ("PUT", "/api/v1/models/{deployment}/gates/{revision}/verdict"): "update deployments",
}
"""Routes that destroy data, leave people out, or decide for others."""
OPERATORS = {("PUT", "/api/v1/artifacts/in-use")}
AGENTS: set[Route] = {
    # Records, stores, recalls, asks to be rewarded or trained: the last with its own rights in Kubernetes.
    ("POST", "/api/v1/trajectories"),
    ("POST", "/api/v1/experience/similar"),
    ("POST", "/api/v1/rewards/calculate"),
    ("POST", "/api/v1/rewards/dry-run"),
    ("POST", "/api/v1/rewards/bias"),
    ("POST", "/api/v1/memory/store"),
    ("POST", "/api/v1/memory/store/batch"),
    ("POST", "/api/v1/memory/retrieve"),
    ("POST", "/api/v1/memory/feedback"),
    ("POST", "/api/v1/memory/consolidate"),
    ("POST", "/api/v1/memory/import"),
    ("PUT", "/api/v1/artifacts"),
    ("POST", "/api/v1/training/start"),
    ("POST", "/api/v1/training/stop"),
    ("POST", "/api/v1/feedback"),
    ("POST", "/api/v1/preferences"),
    # The pods of the run or of the suite alone, where there is a cluster to ask: training_ranks.py, gate_suites.py.
    ("PUT", "/api/v1/training/runs/{job}/heartbeat"),
    ("PUT", "/api/v1/training/runs/{job}/checkpoint"),
    ("PUT", "/api/v1/training/runs/{job}/proof"),
    ("PUT", "/api/v1/models/{deployment}/gates/{job}/report"),
}
"""In addition an agent may read whatever its namespace has."""
BODIES = {
    ("PUT", "/api/v1/artifacts/in-use"): {"sha256": [], "jobs": []},
    ("POST", "/api/v1/memory/forget"): {"agent_id": "a", "budget": 3},
    ("POST", "/api/v1/memory/origins"): {"origin": "web/*", "action": "quarantine"},
}
"""For routes that look at the body before they ask who may."""
OFF = "training by REST is off"
NARROW: dict[Bearer, tuple[str, set[Route]]] = {
    "rank": (
        names.RUN_AUDIENCE,
        {
            ("PUT", "/api/v1/training/runs/{job}/heartbeat"),
            ("PUT", "/api/v1/training/runs/{job}/checkpoint"),
            ("PUT", "/api/v1/training/runs/{job}/proof"),
            ("GET", "/api/v1/training/runs/{job}"),
            ("GET", "/api/v1/training/runs/{job}/checkpoint"),
            ("PUT", "/api/v1/artifacts"),
            ("GET", "/api/v1/artifacts/{sha256:digest}"),
            ("GET", "/api/v1/experience/observations"),
            ("GET", "/api/v1/experience/trajectories"),
            ("GET", "/api/v1/preferences"),
            ("GET", "/api/v1/rewards/policies/{name}/revisions/{revision}"),
        },
    ),
    "gate suite": (names.GATE_AUDIENCE, {("PUT", "/api/v1/models/{deployment}/gates/{job}/report")}),
}
"""The routes of the tokens of ranks and gate suites, by their audience; each other route refuses them, reads too."""


OPERATOR = ("learnloop-system", "learnloop-operator")


def account(right: str) -> str:
    return right.replace(" ", "-")


def subject(right: str) -> str:
    return f"system:serviceaccount:red:{account(right)}"


async def ask(api: Api, route: Route, token: str, **more) -> tuple[int, str]:
    body = {} if route[0] == "GET" else {"json": {**BODIES.get(route, {}), **more}}
    headers = {"Authorization": f"Bearer {token}"}
    answer = await api.client.request(route[0], filled(route[1]), **body, headers=headers)
    return answer.status_code, answer.text


def test_every_route_that_changes_something_is_written_down_once() -> None:
    changing = {route for route in routes() if route[0] != "GET" and route not in FOR_ANYBODY}
    assert changing == RIGHTS.keys() | OPERATORS | AGENTS
    assert not AGENTS & (RIGHTS.keys() | OPERATORS)


async def test_an_agent_is_refused_what_is_not_an_agents_with_the_right_that_is_missing(guarded, cluster, caplog):
    wrong = {}
    for route in routes():
        if route in FOR_ANYBODY:
            continue
        code, text = await ask(guarded, route, cluster.token("red", "agent"))
        right = RIGHTS.get(route)
        refused = code in (401, 403) and OFF not in text
        as_wished = code == 403 if right or route in OPERATORS else not refused
        if not as_wished or (right and f"may not {right}" not in text):
            wrong[route] = (code, text[:200])
    assert wrong == {}
    line = next(line for line in caplog.messages if line.startswith("PUT /api/v1/users/{user_id}/opt-out"))
    assert "by system:serviceaccount:red:agent is refused with 403" in line


async def test_each_route_takes_its_own_right_and_the_operator_needs_none(guarded: Api, cluster: Cluster) -> None:
    every, wrong = set(RIGHTS.values()), {}
    for right in every:
        cluster.rights[subject(right)] = {right}
        cluster.rights[subject(f"not-{right}")] = every - {right}
    for route, right in RIGHTS.items():
        has, lacks = (cluster.token("red", account(name)) for name in (right, f"not-{right}"))
        codes = [(await ask(guarded, route, token))[0] for token in (has, lacks, cluster.token(*OPERATOR))]
        if codes[0] in (401, 403) or codes[1] != 403 or codes[2] in (401, 403):
            wrong[route] = codes
    assert wrong == {}
    for route in OPERATORS:
        code, _ = await ask(guarded, route, cluster.token("red", account("update agents")))
        assert code == 403
        code, _ = await ask(guarded, route, cluster.token(*OPERATOR))
        assert code != 403


@pytest.mark.parametrize("bearer", list(NARROW))
@pytest.mark.parametrize("account", ["agent", "every-right"])
async def test_a_rank_and_a_suite_are_refused_whatever_is_not_theirs_with_whatever_rights(
    guarded: Api, cluster: Cluster, bearer: Bearer, account: str
) -> None:
    cluster.rights[subject("every right")] = set(RIGHTS.values())
    audience, own_rights = NARROW[bearer]
    token, wrong = cluster.token("red", account, aud=[audience]), {}
    assert len(OPEN[bearer]) == len(own_rights) == len(own_rights & set(routes()))
    for route in routes():
        if route in FOR_ANYBODY:
            continue
        code, text = await ask(guarded, route, token)
        refused = code == 403 and f"the token of a {bearer} does not open" in text
        if refused is (route in own_rights) or code == 401:
            wrong[route] = (code, text[:200])
    assert wrong == {}
    agents = {"Authorization": f"Bearer {token}"}
    memory = {"agent_id": "a", "memory_type": "semantic", "content": {"text": "planted"}}
    for path in ("/api/v1/memory/store", "/api/v1/training/runs/x/heartbeat/../../../../memory/store"):
        answer = await guarded.client.post(path, json=memory, headers=agents)
        assert answer.status_code == 403
    abroad = {"Authorization": f"Bearer {cluster.token(*OPERATOR, aud=[audience])}", "x-learnloop-namespace": "red"}
    answer = await guarded.client.delete("/api/v1/training/runs/x", headers=abroad)
    assert answer.status_code == 403, "nor as the operator's account"


async def test_a_token_for_both_is_an_agents(guarded: Api, cluster: Cluster) -> None:
    token = cluster.token("red", "agent", aud=["learnloop", names.RUN_AUDIENCE])
    code, _ = await ask(guarded, ("GET", "/api/v1/audit/records"), token)
    assert code == 200


async def test_an_administrator_of_one_namespace_is_nothing_in_another(guarded: Api, cluster: Cluster) -> None:
    cluster.rights["system:serviceaccount:blue:admin"] = set(RIGHTS.values())
    headers = {"x-learnloop-namespace": "red", "Authorization": f"Bearer {cluster.token('blue', 'admin')}"}
    for method, path in RIGHTS:
        answer = await guarded.client.request(method, filled(path), json={}, headers=headers)
        assert answer.status_code == 403, path


async def test_an_agent_may_ask_what_forgetting_and_rolling_back_would_do(guarded: Api, cluster: Cluster) -> None:
    for route in BODIES.keys() & RIGHTS.keys():
        code, text = await ask(guarded, route, cluster.token("red", "agent"), dry_run=True)
        assert code == 200, text
