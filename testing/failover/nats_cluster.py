"""Three real nats-servers as one JetStream cluster, each of which can be killed and started again."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testing.servers.nats_server import Nats
from testing.servers.ports import held_port


class NatsCluster:
    """The servers; `url` names all of them."""

    def __init__(self, servers: list[Nats], own: list[str]) -> None:
        self.servers = servers
        self._own = own
        self.url = ",".join(server.url for server in servers)

    def by_name(self, name: str) -> Nats:
        """The one that calls itself so, as in a stream's `cluster.leader`."""
        return self.servers[int(name.rpartition("-")[2])]

    def replace(self, number: int, more: str) -> None:
        """One server with other lines of configuration, as a StatefulSet replaces its pods."""
        self.servers[number].replace(self._own[number] + more)


@contextmanager
def nats_cluster(folder: Path, size: int = 3, more: str = "", routes_tls: str = "") -> Iterator[NatsCluster]:
    """Started together, as the chart's StatefulSet is.

    Args:
        more: lines of every server's configuration.
        routes_tls: lines inside of `cluster`, e.g. a `tls` block.
    """
    with ExitStack() as stack:
        clients, peers = ([stack.enter_context(held_port()) for _ in range(size)] for _ in range(2))
        routes = ", ".join(f'"nats://127.0.0.1:{peer}"' for peer in peers)
        servers, own = [], []
        for number in range(size):
            cluster = (
                f"server_name: nats-{number}\n"
                f'cluster {{ name: learnloop, listen: "127.0.0.1:{peers[number]}", routes: [{routes}]\n'
                f"no_advertise: true\n{routes_tls} }}\n"
            )
            own.append(cluster)
            servers.append(Nats(folder / f"nats-{number}", clients[number], more=cluster + more))
        for server in servers:
            stack.callback(server.kill)
            server.start()
        yield NatsCluster(servers, own)
