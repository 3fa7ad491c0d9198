"""Namespaces do not see one another, whatever a query forgets; and callers prove which one is theirs."""

import time

import asyncpg
import jwt
import pytest

from learnloop_api import names
from learnloop_api.names import memory_audience
from learnloop_dataplane.access.tokens import Authenticator
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.experience_tables import SQLModel
from learnloop_dataplane.postgres.row_level_security import SERVICE_ROLE, UNSCOPED
from testing.servers.token_issuer import ISSUER, Cluster

from ..conftest import Api, running, settings, trajectory
from .conftest import OPERATOR


async def test_a_query_without_where_sees_no_other_tenant(api: Api) -> None:
    for namespace in ("red", "blue"):
        await api.call("POST", "/api/v1/trajectories", 202, namespace=namespace, json=trajectory(f"{namespace}-1"))
        await api.call("PUT", "/api/v1/agents/walker", namespace=namespace, json={})
    db: Database = api.db
    async with db.tenant("red") as connection:
        for table in ("trajectories", "training_transitions", "agents"):
            rows = await connection.fetch(f"SELECT DISTINCT namespace FROM {table}")
            assert [row["namespace"] for row in rows] == ["red"]
        assert await connection.execute("DELETE FROM trajectories") == "DELETE 1"
    async with db.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM trajectories") == 0, "no namespace named, nothing seen"
    async with db.tenant("blue") as connection:
        assert await connection.fetchval("SELECT count(*) FROM trajectories") == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("INSERT INTO artifacts (namespace, sha256, size_bytes) VALUES ('red', 'x', 1)")


async def test_every_table_is_under_the_rule_and_the_service_is_not_above_it(api: Api) -> None:
    async with api.db.transaction() as connection:
        rows = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = current_schema()::regnamespace AND relrowsecurity AND relforcerowsecurity"
        )
        role = await connection.fetchrow(
            "SELECT rolname, rolsuper OR rolbypassrls AS above FROM pg_roles WHERE rolname = current_user"
        )
        rules = await connection.fetch("SELECT tablename FROM pg_policies")
    assert (
        {row["relname"] for row in rows}
        == {row["tablename"] for row in rules}
        == set(SQLModel.metadata.tables) - set(UNSCOPED)
    )
    assert tuple(role) == (SERVICE_ROLE, False)


async def _status(api: Api, token: str | None, **headers: str) -> int:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    answer = await api.client.get("/api/v1/training/runs/none", headers=headers)
    assert answer.json()["error"]["message"]
    return answer.status_code


async def test_the_token_decides_the_namespace(guarded: Api, cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {cluster.token('red')}"}
    await guarded.client.post("/api/v1/trajectories", json=trajectory("own"), headers=headers)
    async with guarded.db.tenant("red") as connection:
        assert await connection.fetchval("SELECT count(*) FROM trajectories WHERE trajectory_id = 'own'") == 1
    assert await _status(guarded, cluster.token("red"), **{"x-learnloop-namespace": "red"}) == 404
    assert await _status(guarded, cluster.token("red"), **{"x-learnloop-namespace": "blue"}) == 403


async def test_a_token_behind_a_proxy_that_takes_authorization_away_counts_the_same(guarded, cluster):
    for path, status in (("/api/v1/training/runs/none", 404), ("/api/v1/memory/retrieve", 405)):
        answer = await guarded.client.get(path, headers={"x-learnloop-token": cluster.token("red")})
        assert answer.status_code == status
    ask = {"agent_id": "walker", "context": "x"}
    for token, status in ((cluster.token("red"), 200), ("nonsense", 401), ("x" * 20_000, 422)):
        headers = {"x-learnloop-token": token}
        answer = await guarded.client.post("/api/v1/memory/retrieve", json=ask, headers=headers)
        assert answer.status_code == status
    both = {"x-learnloop-token": cluster.token("red"), "Authorization": f"Bearer {Cluster().token('red')}"}
    assert await _status(guarded, None, **both) == 401, "what the caller says openly decides"
    for path in ("/api/v1/memory/retrieve", "/api/v1/memory/forget"):
        long = {"Authorization": f"Bearer {cluster.token('red')}", "x-learnloop-token": "x" * 20_000}
        answer = await guarded.client.post(path, json=ask, headers=long)
        assert answer.status_code == 422, f"{path}: an unused header is bounded, too"


async def test_only_the_operator_acts_for_other_namespaces(guarded: Api, cluster: Cluster) -> None:
    operator = cluster.token("learnloop-system", "learnloop-operator")
    assert await _status(guarded, operator, **{"x-learnloop-namespace": "blue"}) == 404
    pretender = cluster.token("blue", sub=OPERATOR)
    assert await _status(guarded, pretender, **{"x-learnloop-namespace": "red"}) == 401


async def test_a_token_for_one_memory_service_is_good_for_no_other_and_not_for_the_data_plane(guarded, cluster):
    notes, other, foreign = (memory_audience(*own) for own in (("red", "notes"), ("red", "other"), ("blue", "notes")))
    config = guarded.plane.shared.config.model_copy(update={"audience": notes})
    service = Authenticator(config)
    identity = await service.identify(f"Bearer {cluster.token('red', aud=[notes])}", None)
    assert identity.namespace == "red"
    for audience in ("learnloop", other, foreign, names.RUN_AUDIENCE, names.GATE_AUDIENCE):
        with pytest.raises(ApiError, match="Audience doesn't match"):
            await service.identify(f"Bearer {cluster.token('red', aud=[audience])}", None)
    with pytest.raises(ApiError, match=f"audience {notes} as a Bearer token"):
        await service.identify(None, None)
    assert await _status(guarded, cluster.token("red", aud=[notes])) == 401


async def test_bad_tokens_are_refused_and_logged(guarded, cluster, caplog):
    forged = Cluster()
    bad = [
        None,
        "nonsense",
        cluster.token(aud=["other"]),
        cluster.token(iss="https://elsewhere"),
        cluster.token(exp=int(time.time()) - 120),
        cluster.token(**{"kubernetes.io": {}}),
        forged.token(),
        jwt.encode({"aud": "learnloop"}, "x" * 32, algorithm="HS256", headers={"kid": "k1"}),
    ]
    assert [await _status(guarded, token) for token in bad] == [401] * len(bad)
    assert 1 <= sum("refused with 401" in line for line in caplog.messages) < len(bad), "in ten seconds one line"
    assert (await guarded.client.get("/healthz")).status_code == 200


async def test_unknown_keys_are_looked_up_but_not_at_the_callers_pace(guarded: Api, cluster: Cluster) -> None:
    assert await _status(guarded, cluster.token()) == 404
    before = cluster.requests
    cluster.add("k2")
    guarded.plane.callers.authenticator._tokens._keys._tried = -1e9
    assert await _status(guarded, cluster.token(kid="k2")) == 404
    stranger = Cluster()
    stranger.add("k9")
    for _ in range(5):
        assert await _status(guarded, stranger.token(kid="k9")) == 401
    assert cluster.requests == before + 1


async def test_without_the_api_server_the_answer_is_try_again(dsn, tmp_path, cluster, port):
    values = settings(dsn, tmp_path, auth="jwks", jwks_url=f"http://127.0.0.1:{port}/jwks", issuer=ISSUER)
    async with running(**values) as api:
        assert await _status(api, cluster.token()) == 503
