"""The network of a MemoryService: its namespace asks it, and it alone asks its PostgreSQL."""

from urllib.parse import urlsplit

from learnloop_api import names
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.workload_network import (
    DNS,
    Rule,
    WorkloadNetwork,
    addresses,
    data_plane,
    pods,
    policy,
    ports,
)
from learnloop_operator.memory_services.manifests import POSTGRES, POSTGRES_PORT, SERVER
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

WEAVIATE_GRPC = 50051
"""Default of a Weaviate without a gRPC address."""


def network_policies(world: MemoryServiceSnapshot) -> tuple[Manifest, ...]:
    """NetworkPolicies of the service and of its PostgreSQL; none where the installation wants none."""
    network = world.network
    if network is None:
        return ()
    callers = [{"podSelector": {}}, *network.peers]
    wanted: list[Rule] = [ports(names.PORT_DATA, peers=callers, key="from")]
    if network.peers:  # a rule without peers would let everybody in
        wanted.append(ports(names.PORT_PROBES, peers=network.peers, key="from"))
    server = policy(
        world.object,
        name=world.server_name,
        component=SERVER,
        selector=world.selector(SERVER),
        ingress=wanted,
        egress=_called(world, network) if network.closed and world.spec.storage is not None else None,
    )
    if world.spec.storage is None:
        return (server,)
    database = policy(
        world.object,
        name=world.database_name,
        component=POSTGRES,
        selector=world.selector(POSTGRES),
        ingress=[ports(POSTGRES_PORT, peers=[pods(world.selector(SERVER))], key="from")],
        # What asks for its certificate.
        egress=[DNS, data_plane(world.data_url)] if world.tls and world.data_url else [],
    )
    return (server, database)


def _called(world: MemoryServiceSnapshot, network: WorkloadNetwork) -> list[Rule]:
    """A database of somebody else's is at an address in a Secret, which the operator cannot read: nothing is closed."""
    where = world.spec.weaviate
    grpc = f"http://{where.grpc or f'{urlsplit(where.url).hostname}:{WEAVIATE_GRPC}'}" if where else None
    return [
        ports(POSTGRES_PORT, peers=[pods(world.selector(POSTGRES))], key="to"),
        # The keys that callers' tokens are checked with.
        {"ports": [{"port": port, "protocol": "TCP"} for port in network.api_server_ports]},
        DNS,
        *([data_plane(world.data_url)] if world.data_url else []),
        *addresses(world.spec.to_kube(), grpc),
        *network.to,
    ]
