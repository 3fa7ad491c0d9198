"""The namespace in which code of unknown intent is run."""

import pytest

from testing.network_policies import Network, Party

from .conftest import Rejected, Render

ON = {"dataPlane": {"sandbox": {"enabled": True}}}


def test_there_is_none_unless_it_is_wanted(render: Render) -> None:
    release = render()
    assert not release.of("Namespace")
    assert "LEARNLOOP_SANDBOX" not in release.environment("learnloop-data")


def test_its_pods_are_restricted_few_and_reach_nobody(render: Render) -> None:
    release = render(ON)
    (namespace,) = release.of("Namespace")
    name = namespace["metadata"]["name"]
    assert name == "learnloop-system-sandbox"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (quota,) = release.of("ResourceQuota")
    assert quota["metadata"]["namespace"] == name
    assert quota["spec"]["hard"]["pods"] == "8"
    assert quota["spec"]["hard"]["secrets"] == "0"
    network = Network(release.of("NetworkPolicy"))
    pod = Party("run", name, {"learnloop.dev/sandbox": "case"})
    for other in (Party("outside"), Party("data", "learnloop-system", {"app.kubernetes.io/component": "data-plane"})):
        for port in (53, 443, 8080):
            assert not network.allows(pod, other, port)
            assert not network.allows(other, pod, port)


def test_the_data_plane_may_make_jobs_there_and_read_what_they_said_and_nothing_else(render: Render) -> None:
    release = render(ON)
    role = next(one for one in release.of("Role") if one["metadata"]["name"] == "learnloop-sandbox")
    assert role["metadata"]["namespace"] == "learnloop-system-sandbox"
    assert {(one["resources"][0], *one["verbs"]) for one in role["rules"]} == {
        ("jobs", "create", "delete"),
        ("pods", "list"),
        ("pods/log", "get"),
    }
    setting = release.environment("learnloop-data")["LEARNLOOP_SANDBOX"]
    image = release.one("Deployment", "learnloop-data")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert setting == f"learnloop-system-sandbox#{image}"


def test_a_namespace_with_secrets_in_it_is_refused(render: Render) -> None:
    with pytest.raises(Rejected, match="name a namespace of its own"):
        render({"dataPlane": {"sandbox": {"enabled": True, "namespace": "learnloop-system"}}})
