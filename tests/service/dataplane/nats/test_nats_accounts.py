"""A server that would answer tenants by itself is refused."""

from testing.servers.nats_server import Nats
from testing.servers.tenants_nats import LOGIN, PASSWORD

from ..conftest import eventually, running, settings


async def test_a_server_whose_tenants_would_reach_jetstream_is_refused(dsn, tmp_path, port, cluster):
    """One account for all, as the chart had it once: every token would be as dangerous as the data plane's own user."""
    users = ", ".join(f"{{user: {user}, password: {PASSWORD}}}" for user in ("learnloop", "learnloop-tenants"))
    server = Nats(tmp_path / "nats", port, more=f"authorization {{ users: [{users}] }}\n").start()
    own = tmp_path / "token"
    own.write_text(cluster.token())
    with cluster.served() as url:
        values = settings(dsn, tmp_path, auth="jwks", jwks_url=url, jwks_token_file=str(own))
        async with running(**values, **LOGIN, nats_url=server.url, wait_for_nats=False) as api:
            await eventually(lambda: "every tenant would" in api.bus.problem)
            assert not api.bus.ready.is_set()
            ready = await api.client.get("/readyz")
            assert ready.status_code == 503
            assert "account TENANTS without JetStream" in ready.text
    server.kill()
