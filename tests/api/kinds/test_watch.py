"""A watch of the command line before a real API server: a version that is gone is listed again."""

import pytest

from learnloop_api.names import API_VERSION
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.objects import VersionGoneError


@pytest.fixture
def rollout(kube, namespace: str) -> dict:
    body = {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"model": {"uri": "uniform://discrete/2?observations=4"}},
    }
    kube.create(body)
    return body


def test_a_watch_from_a_version_that_is_gone_ends_so_that_the_caller_lists_again(api_server, namespace, rollout):
    cluster = KubernetesCluster(str(api_server), None, namespace)
    with pytest.raises(VersionGoneError):
        list(cluster.changes("modeldeployments", namespace, "1"))
    version, objects = cluster.list_objects("modeldeployments", namespace)
    assert (int(version) > 1, [body["metadata"]["name"] for body in objects]) == (True, ["x"])
