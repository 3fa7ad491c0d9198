"""No statement reads more because an agent has a long history: those of every route, and those of background work."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from fastapi.openapi.utils import get_openapi

from learnloop_dataplane.api.app import ROUTERS
from testing.history.long_history import (
    BUSY,
    DEPLOYMENT,
    NAMESPACE,
    POLICY,
    POLICY_REVISION,
    QUIET,
    REVISION,
    fill_episodes,
    fill_memories,
)
from testing.history.statement_plans import Statements, cost, recorded

from ..api.test_every_route import Route, routes
from ..conftest import Api, eventually, running, settings, superuser, trajectory
from ..experience.test_preferences import preference
from ..registry.test_gate_reports import JUDGED
from ..studies.test_studies import order

COUNT = 100_000
MOST_ROWS = COUNT // 4
"""That one statement may look at: what bounds it must be its own, and none of the history's."""
EPISODES, POLICIES = "/api/v1/experience/trajectories", f"/api/v1/rewards/policies/{POLICY}/revisions/{POLICY_REVISION}"
EVALUATED = {
    "components": [
        {"name": "won", "type": "success", "weight": 0.5},
        {
            "name": "brief",
            "type": "evaluator",
            "weight": 0.5,
            "evaluator": {"type": "regex", "regex": {"pattern": "4"}},
        },
    ]
}
AT = "2026-11-01T00:00:00Z"
BODY = b"{}"
DIGEST = {"x-learnloop-sha256": sha256(BODY).hexdigest()}
HEARTBEAT = {
    "job": "j",
    "attempt": 0,
    "phase": "training",
    "step": 1,
    "total_steps": 2,
    "world_size": 1,
    "steps_per_second": 1,
    "at": AT,
}
DEPLOYED = {
    "model_deployment": DEPLOYMENT,
    "revision": REVISION,
    "uri": "learnloop://team-a/x",
    "sha256": "a" * 64,
    "deployed_at": AT,
}
BOTH = (BUSY, QUIET)
Query = tuple[str, dict[str, Any]]


def get(path: str, **query) -> Query:
    return path, {"params": query}


def send(path: str, **body) -> Query:
    return path, {"json": body}


REQUESTS: dict[Route, list[Query]] = {
    ("GET", EPISODES): [
        get(EPISODES, agent=BUSY),
        get(EPISODES, agent=BUSY, after="50000"),
        get(EPISODES, agent=QUIET),
    ],
    ("GET", "/api/v1/experience/observations"): [*(get("/api/v1/experience/observations", agent=one) for one in BOTH)],
    ("POST", "/api/v1/experience/similar"): [
        *(send("/api/v1/experience/similar", agent_id=one, state=[0.5]) for one in BOTH)
    ],
    ("GET", "/api/v1/agents/{agent}/stats"): [get(f"/api/v1/agents/{one}/stats") for one in BOTH],
    ("GET", "/api/v1/agents/{agent}/exploration"): [get(f"/api/v1/agents/{one}/exploration") for one in BOTH],
    ("GET", "/api/v1/rewards/policies/{name}/revisions/{revision}"): [get(POLICIES)],
    ("GET", "/api/v1/rewards/policies/{name}/revisions/{revision}/signals"): [get(f"{POLICIES}/signals")],
    ("GET", "/api/v1/rewards/history"): [*(get("/api/v1/rewards/history", agent_id=one) for one in BOTH)],
    ("GET", "/api/v1/rewards/credits/{trajectory_id}"): [get("/api/v1/rewards/credits/h500")],
    ("GET", "/api/v1/rewards/credits"): [*(get("/api/v1/rewards/credits", agent_id=one) for one in BOTH)],
    ("POST", "/api/v1/rewards/calculate"): [
        send(
            "/api/v1/rewards/calculate",
            agent_id=BUSY,
            result={"episode_return": 1, "task_type": "none", "agents": [{"agent": BUSY}, {"agent": QUIET}]},
        )
    ],
    ("GET", "/api/v1/preferences"): [*(get("/api/v1/preferences", agent=one) for one in BOTH)],
    ("POST", "/api/v1/preferences"): [send("/api/v1/preferences", **preference("new", BUSY, user_id="zoe"))],
    ("POST", "/api/v1/feedback"): [send("/api/v1/feedback", trajectory_id="h500", user_id="zoe", stars=5)],
    ("POST", "/api/v1/trajectories"): [
        send("/api/v1/trajectories", **trajectory("new-1", BUSY, metadata={"user_id": "zoe", "joint_task": "joint5"})),
        send("/api/v1/trajectories", **trajectory("new-2", QUIET, result={"output": "4"})),
    ],
    ("GET", "/api/v1/models"): [get("/api/v1/models")],
    ("GET", "/api/v1/models/{deployment}/deployed"): [get(f"/api/v1/models/{DEPLOYMENT}/deployed")],
    ("GET", "/api/v1/models/{deployment}/outcomes"): [
        get(f"/api/v1/models/{DEPLOYMENT}/outcomes", revision=REVISION, seconds=3600)
    ],
    ("GET", "/api/v1/models/{deployment}/gates"): [get(f"/api/v1/models/{DEPLOYMENT}/gates")],
    ("PUT", "/api/v1/models/{deployment}/deployed"): [send(f"/api/v1/models/{DEPLOYMENT}/deployed", **DEPLOYED)],
    ("PUT", "/api/v1/models/{deployment}/rolled-back"): [
        send(f"/api/v1/models/{DEPLOYMENT}/rolled-back", **DEPLOYED, event="rolled_back")
    ],
    ("PUT", "/api/v1/models/{deployment}/gates/{revision}/verdict"): [
        send("/api/v1/models/md/gates/1a2b3c4d/verdict", **JUDGED)
    ],
    ("GET", "/api/v1/audit/records"): [get("/api/v1/audit/records")],
    ("PUT", "/api/v1/training/runs/{job}/heartbeat"): [send("/api/v1/training/runs/j/heartbeat", **HEARTBEAT)],
    ("GET", "/api/v1/training/runs/{job}"): [get("/api/v1/training/runs/j")],
    ("PUT", "/api/v1/training/runs/{job}/checkpoint"): [
        ("/api/v1/training/runs/j/checkpoint", {"content": BODY, "headers": {**DIGEST, "x-learnloop-step": "1"}})
    ],
    ("GET", "/api/v1/training/runs/{job}/checkpoint"): [get("/api/v1/training/runs/j/checkpoint")],
    ("PUT", "/api/v1/artifacts"): [("/api/v1/artifacts", {"content": BODY, "headers": DIGEST})],
    ("GET", "/api/v1/artifacts/{sha256:digest}"): [get(f"/api/v1/artifacts/{sha256(BODY).hexdigest()}")],
    ("PUT", "/api/v1/artifacts/in-use"): [send("/api/v1/artifacts/in-use", sha256=[], jobs=["j"])],
    ("PUT", "/api/v1/models/{deployment}/gates/{job}/report"): [
        ("/api/v1/models/md/gates/md-1/report", {"content": BODY, "headers": DIGEST})
    ],
    ("PUT", "/api/v1/training/studies/{job}"): [send("/api/v1/training/studies/s", **order("s"))],
    ("GET", "/api/v1/memory/entries"): [*(get("/api/v1/memory/entries", agent_id=one) for one in BOTH)],
    ("POST", "/api/v1/memory/store"): [
        send("/api/v1/memory/store", agent_id=BUSY, memory_type="semantic", content={"text": "The floor is wet."})
    ],
    ("PUT", "/api/v1/agents/{agent}"): [
        send(f"/api/v1/agents/{BUSY}", reward_policy=POLICY, reward_policy_revision="p2"),
        send(f"/api/v1/agents/{BUSY}", reward_policy=POLICY, reward_policy_revision=POLICY_REVISION),
    ],
    ("DELETE", "/api/v1/training/runs/{job}"): [("/api/v1/training/runs/j", {})],
    ("DELETE", "/api/v1/models/{deployment}"): [("/api/v1/models/none", {})],
}
NO_ROW = {"since": "2999-01-01T00:00:00Z", "until": "2000-01-01T00:00:00Z", "min_reward": 9, "max_reward": -9}
NO_ROW |= {"opted_in": "true", "ended": "true", "newest": "true", "success": "false"}
"""Of each filter of a list a value that hides as much as it can, so that a page looks furthest; else `none`."""
PAGING = {"limit", "after", "before", "back", "weeks", "namespace", "source"}


def filtered() -> Iterator[tuple[Route, Query]]:
    """The first request of each list with each of its filters, with each two and with all."""
    described = get_openapi(title="", version="", routes=[route for router in ROUTERS for route in router.routes])
    for path, methods in described["paths"].items():
        cases = REQUESTS.get(("GET", path), [("", {})])[0]
        given = cases[1].get("params", {})
        parameters = [one["name"] for one in methods.get("get", {}).get("parameters", ()) if one["in"] == "query"]
        free = [name for name in parameters if name not in PAGING and name not in given]
        if cases[0] and free:
            for names in (*combinations(free, 1), *combinations(free, 2), tuple(free)):
                yield ("GET", path), get(cases[0], **given, **{name: NO_ROW.get(name, "none") for name in names})


WHOLE = {
    ("GET", "/api/v1/agents/{agent}/progress"): "counts every episode of the weeks that were asked for",
    ("POST", "/api/v1/rewards/dry-run"): "reads the window that was asked for, page by page",
    ("POST", "/api/v1/rewards/bias"): "reads as many episodes as the policy says, page by page",
    ("GET", "/api/v1/audit/verify"): "checks the whole chain, page by page",
    ("GET", "/api/v1/quotas"): "counts what a namespace has",
    ("POST", "/api/v1/erasure"): "deletes all of a person or an agent",
    ("PUT", "/api/v1/users/{user_id}/opt-out"): "deletes all of a person",
    ("DELETE", "/api/v1/agents/{agent}"): "ends the agent's registration, which the others here need",
}
"""Routes whose answer is about all there is."""
ELSEWHERE = ("/api/v1/memory/", "/api/v1/agents/{agent}/memory-budget")
"""Memories: recall has benches of its own, and what rewrites an agent's memories reads them all."""
NO_HISTORY = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/api/v1/schemas"),
    ("GET", "/api/v1/schemas/{subject}"),
    # The API server has the jobs.
    ("POST", "/api/v1/training/start"),
    ("POST", "/api/v1/training/stop"),
    ("GET", "/api/v1/training/status"),
    # One row by its key, or the operator's newest audit records.
    ("DELETE", "/api/v1/users/{user_id}/opt-out"),
    ("PUT", "/api/v1/agents/{agent}/training-orders/{order}"),
    ("PUT", "/api/v1/models/{deployment}/decisions/{decision}"),
    ("PUT", "/api/v1/models/{deployment}/awaited-approval"),
    ("DELETE", "/api/v1/models/{deployment}/awaited-approval"),
    ("PUT", "/api/v1/training/runs/{job}/status"),
    ("PUT", "/api/v1/training/runs/{job}/proof"),
    ("PUT", "/api/v1/training/runs/{job}/update"),
    ("PUT", "/api/v1/rewards/policies/{name}/revisions/{revision}"),
    ("GET", "/api/v1/training/studies/{job}"),
    ("DELETE", "/api/v1/training/studies/{job}"),
    ("PUT", "/api/v1/training/studies/{job}/trials/{number}"),
    ("PUT", "/api/v1/training/studies/{job}/trials/{number}/progress"),
    ("PUT", "/api/v1/training/studies/{job}/trials/{number}/result"),
}
PASSES = {
    "v.analyzer IS DISTINCT FROM": "once after each start",
    "v.embedder IS DISTINCT FROM": "once after each start",
    "DELETE FROM memory_use": "once an hour",
    "FROM memory_index": "memories to list or embed are looked for by an index, once a minute",
}
"""Passes over all there is, by a part of their statement."""


def test_every_route_is_measured_or_says_why_not() -> None:
    measured_paths = {*REQUESTS, *WHOLE, *NO_HISTORY}
    left = {route for route in routes() if route not in measured_paths and not route[1].startswith(ELSEWHERE)}
    assert left == set()


@pytest.fixture
async def history(
    migrated: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Api, Statements]]:
    """A service of an agent with a long history, and what it has sent since its start."""
    dsn, statements = migrated(f"long_{os.getpid()}"), recorded(monkeypatch)
    async with running(**settings(dsn, tmp_path)) as api:
        for revision in (POLICY_REVISION, "p2"):
            await api.call("PUT", f"/api/v1/rewards/policies/{POLICY}/revisions/{revision}", json=EVALUATED)
        for agent in (QUIET, BUSY):
            reward = {"reward_policy": POLICY, "reward_policy_revision": POLICY_REVISION}
            await api.call("PUT", f"/api/v1/agents/{agent}", json=reward)
        memory = {"agent_id": BUSY, "memory_type": "semantic", "content": {"text": "Stairs: shorten the step."}}
        await api.call("POST", "/api/v1/memory/store", 201, json=memory)

        async def indexed() -> bool:
            async with api.db.tenant(NAMESPACE) as connection:
                return bool(await connection.fetchval("SELECT count(*) FROM memory_index"))

        await eventually(indexed)
    async with superuser(dsn) as owner:
        await fill_episodes(owner, COUNT)
        await fill_memories(owner, COUNT)
        await owner.execute("VACUUM ANALYZE")
    statements.plans.clear()
    async with running(**settings(dsn, tmp_path, index_check_seconds=1.0)) as api:
        yield api, statements


async def drive(api: Api, statements: Statements) -> None:
    """Every request, and background work until what it brought is rewarded."""
    refused = []
    one_by_one = [(route, request) for route, requests in REQUESTS.items() for request in requests]
    for (method, _), (target, more) in [*filtered(), *one_by_one]:
        headers = {"x-learnloop-namespace": NAMESPACE, **more.get("headers", {})}
        name = f"{method} {target} {more.get('params', '')}"
        with statements.during(name):
            answer = await api.client.request(method, target, **{**more, "headers": headers})
        if not answer.is_success:
            refused.append(f"{name}: {answer.status_code} {answer.text[:300]}")
    assert refused == []

    async def rewarded() -> bool:
        async with api.db.tenant(NAMESPACE) as connection:
            return not await connection.fetchval("SELECT count(*) FROM trajectories WHERE reward IS NULL")

    await eventually(rewarded)
    await asyncio.sleep(1)


async def test_no_statement_reads_more_because_an_agent_has_a_long_history(history: tuple[Api, Statements]) -> None:
    api, statements = history
    await drive(api, statements)
    grown, measured = {}, 0
    async with api.db._connection() as connection:
        for name, sent in statements.plans.items():
            for statement, arguments in sent.items():
                try:
                    plans = await cost(connection, NAMESPACE, statement, arguments)
                except asyncpg.IntegrityConstraintViolationError:
                    continue  # a row that is there by now
                measured += 1
                if plans.rows > MOST_ROWS and not any(part in statement for part in PASSES):
                    grown[name, " ".join(statement.split())[:60]] = (plans.rows, plans.plan)
    assert measured > 150, "most of what was sent was measured"
    assert grown == {}
