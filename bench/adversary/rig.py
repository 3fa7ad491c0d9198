"""PostgreSQL, NATS as the chart configures it, and the data plane as its image runs it, with tokens asked for."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testing.servers.data_plane_process import Product, postgres
from testing.servers.nats_server import Nats
from testing.servers.ports import held_port
from testing.servers.tenants_nats import LOGIN, accounts
from testing.servers.token_issuer import ISSUER, Cluster

VICTIM, ATTACKER = "blue", "red"


@dataclass
class Rig:
    """Everything that is attacked, and who signs tokens."""

    product: Product
    nats: Nats
    cluster: Cluster

    def token(self, namespace: str, account: str = "default") -> str:
        """Of an account, for hours."""
        return self.cluster.token(namespace, account, exp=int(time.time()) + 36_000)


@contextmanager
def standing(directory: Path) -> Iterator[Rig]:
    """All of it, until the block ends."""
    cluster = Cluster()
    with postgres() as server, held_port() as port, cluster.served() as keys:
        nats = Nats(directory / "nats", port, more=accounts(directory)).start()
        own = directory / "token"
        own.write_text(cluster.token())
        login = {name.upper(): value for name, value in LOGIN.items()}
        admins = " ".join(f"system:serviceaccount:{name}:default" for name in (VICTIM, ATTACKER))
        tokens = {"AUTH": "jwks", "JWKS_URL": keys, "ISSUER": ISSUER, "JWKS_TOKEN_FILE": str(own), "ADMINS": admins}
        artifacts = directory / "artifacts"
        artifacts.mkdir()
        product = Product(
            str(server.get_uri()), Path(server.pgdata), artifacts, NATS_URL=nats.url, RUN_WRITERS="namespace",
            **login, **tokens,
        )  # fmt: skip
        try:
            with product:
                yield Rig(product, nats, cluster)
        finally:
            nats.kill()
