"""The network of a LearningAgent's actors: they call, and nobody calls them."""

from learnloop_api import names
from learnloop_api.kinds.task import EnvironmentTask
from learnloop_operator.agents.manifests import ACTOR
from learnloop_operator.agents.snapshot import AgentSnapshot
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.workload_network import DNS, addresses, data_plane, pods, policy, ports


def actor_network(world: AgentSnapshot, environment: EnvironmentTask) -> tuple[Manifest, ...]:
    """The NetworkPolicy of the actors; none where the installation wants none.

    They ask the policy servers of the ModelDeployment, and call the data plane, the MemoryServices of their namespace
    and the DNS. They also call the addresses in their pod options, such as `LEARNLOOP_ENDPOINT` of a gateway.
    """
    network = world.defaults.network
    if network is None:
        return ()
    servers = pods({names.LABEL_DEPLOYMENT: world.name})
    memory = pods({names.LABEL_COMPONENT: "memory-service"})
    out = [
        ports(names.PORT_SERVING, peers=[servers], key="to"),
        *([ports(names.PORT_DATA, peers=[memory], key="to")] if world.memory_url else []),
        data_plane(world.defaults.data_url),
        DNS,
        *addresses(environment.actors.pod.to_kube()),
        *network.to,
    ]
    manifest = policy(
        world.object,
        name=f"{world.name}-actor",
        component=ACTOR,
        selector={names.LABEL_AGENT: world.name, names.LABEL_COMPONENT: ACTOR},
        ingress=[],
        egress=out if network.closed else None,
    )
    return (manifest,)
