"""What the operator believes of a Gateway before it lets it copy requests."""

from typing import Any

import pytest

from learnloop_api.kinds.model_deployment import GatewayRef
from learnloop_operator.adapters import kube_http
from learnloop_operator.adapters.gateway import mirror_problem
from learnloop_operator.adapters.kube import KubeClient

GATEWAY = {"spec": {"gatewayClassName": "edge"}}
REFERENCE = GatewayRef(name="public", namespace="infra")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_http, "BACKOFFS", (0.01, 0.01))


def listing(*features: Any) -> dict[str, Any]:
    return {"status": {"supportedFeatures": list(features)}}


@pytest.mark.parametrize(
    "feature", ["HTTPRouteRequestMirror", {"name": "HTTPRouteRequestMirror"}], ids=["as a word", "as an object"]
)
async def test_a_class_that_lists_the_feature_may_copy(wire: Any, kube: KubeClient, feature: Any) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(200, listing({"name": "Gateway"}, feature))
    assert await mirror_problem(kube, "ns", REFERENCE) == ""


@pytest.mark.parametrize("found", [listing({"name": "HTTPRoute"}), {"status": {}}, {}])
async def test_a_class_that_does_not_list_it_may_not(wire: Any, kube: KubeClient, found: dict[str, Any]) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(200, found)
    said = await mirror_problem(kube, "ns", REFERENCE)
    assert said.startswith("GatewayClass edge does not list HTTPRouteRequestMirror in supportedFeatures; ")


@pytest.mark.parametrize(("said", "problem"), [("supported", ""), ("unsupported", "requestMirror says unsupported")])
async def test_the_user_knows_the_gateway_better_and_nothing_is_asked(
    wire: Any, kube: KubeClient, said: Any, problem: str
) -> None:
    reference = REFERENCE.model_copy(update={"request_mirror": said})
    found = await mirror_problem(kube, "ns", reference)
    assert found.endswith(problem)
    assert bool(found) == bool(problem)


async def test_what_cannot_be_read_may_not_either_and_is_said(wire: Any, kube: KubeClient) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403})
    assert (await mirror_problem(kube, "ns", REFERENCE)).startswith("what it can do could not be read: ")


async def test_a_gateway_that_does_not_exist_copies_nothing(wire: Any, kube: KubeClient) -> None:
    wire.answer(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no", "code": 404})
    assert await mirror_problem(kube, "ns", REFERENCE) == "Gateway public does not exist"
    assert await mirror_problem(kube, "ns", None) == "spec.routing.gateway names none"
