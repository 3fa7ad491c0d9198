"""Two installations whose namespaces overlap by mistake, on a real API server: one decides, the other says so."""

from pathlib import Path

import pytest

from learnloop_operator.adapters.kube import kubeconfig
from learnloop_operator.adapters.kube.client import KubeClient
from learnloop_operator.adapters.kube.kinds import LEASE
from learnloop_operator.adapters.leadership.namespace_claims import NAME, ClaimedElsewhere, NamespaceClaims


async def test_a_namespace_is_one_installations_until_it_gives_it_back(api_server: Path, namespace: str) -> None:
    clients = [KubeClient(kubeconfig.from_kubeconfig(api_server)) for _ in range(2)]
    first, second = (
        NamespaceClaims(client, f"{name}/learnloop-operator") for client, name in zip(clients, "ab", strict=True)
    )
    await first.hold(namespace)
    with pytest.raises(ClaimedElsewhere, match="a/learnloop-operator"):
        await second.hold(namespace)
    lease = await clients[1].get(LEASE, namespace, NAME)
    assert lease["spec"]["holderIdentity"] == "a/learnloop-operator"
    assert namespace in (second.problem() or "")
    await first.give_back({namespace})
    assert await clients[1].find(LEASE, namespace, NAME) is None
    third = NamespaceClaims(clients[1], "b/learnloop-operator")
    await third.hold(namespace)
    for client in clients:
        await client.close()
