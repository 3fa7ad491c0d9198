"""What the operator believes of a Gateway before it lets it copy requests."""

from typing import Any

import pytest

from learnloop_api.kinds.model_deployment import GatewayRef
from learnloop_operator.kube import http_transport
from learnloop_operator.kube.client import KubeClient
from learnloop_operator.kube.gateway_api import Mirroring, mirroring, route_problem

GATEWAY = {"spec": {"gatewayClassName": "edge"}}
REFERENCE = GatewayRef(name="public", namespace="infra")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "BACKOFFS", (0.01, 0.01))


def listing(*features: Any) -> dict[str, Any]:
    return {"status": {"supportedFeatures": list(features)}}


@pytest.mark.parametrize(
    "feature", ["HTTPRouteRequestMirror", {"name": "HTTPRouteRequestMirror"}], ids=["as a word", "as an object"]
)
async def test_a_class_that_lists_the_feature_may_copy(wire: Any, kube: KubeClient, feature: Any) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(200, listing({"name": "Gateway"}, feature))
    found = await mirroring(kube, "ns", REFERENCE)
    said = "GatewayClass edge does not list HTTPRouteRequestPercentageMirror in supportedFeatures"
    assert found == Mirroring(percent_problem=said)


async def test_a_class_that_lists_percentages_too_keeps_to_a_share(wire: Any, kube: KubeClient) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(200, listing({"name": "HTTPRouteRequestMirror"}, {"name": "HTTPRouteRequestPercentageMirror"}))
    assert await mirroring(kube, "ns", REFERENCE) == Mirroring()


@pytest.mark.parametrize("found", [listing({"name": "HTTPRoute"}), {"status": {}}, {}])
async def test_a_class_that_does_not_list_it_may_not(wire: Any, kube: KubeClient, found: dict[str, Any]) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(200, found)
    said = (await mirroring(kube, "ns", REFERENCE)).problem
    assert said.startswith("GatewayClass edge does not list HTTPRouteRequestMirror in supportedFeatures; ")


@pytest.mark.parametrize(("said", "problem"), [("supported", ""), ("unsupported", "requestMirror says unsupported")])
async def test_the_user_knows_the_gateway_better_and_nothing_is_asked(
    wire: Any, kube: KubeClient, said: Any, problem: str
) -> None:
    reference = REFERENCE.model_copy(update={"request_mirror": said})
    found = await mirroring(kube, "ns", reference)
    assert found.problem.endswith(problem)
    assert bool(found.problem) == bool(problem)
    assert bool(found.percent_problem) == (said == "supported"), "who says that it copies has not said how much"


async def test_what_cannot_be_read_may_not_either_and_is_said(wire: Any, kube: KubeClient) -> None:
    wire.answer(200, GATEWAY)
    wire.answer(403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403})
    assert (await mirroring(kube, "ns", REFERENCE)).problem.startswith("what it can do could not be read: ")


async def test_a_gateway_that_does_not_exist_copies_nothing(wire: Any, kube: KubeClient) -> None:
    wire.answer(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "no", "code": 404})
    assert (await mirroring(kube, "ns", REFERENCE)).problem == "Gateway public does not exist"
    assert (await mirroring(kube, "ns", None)).problem == "spec.routing.gateway names none"


def test_a_route_of_which_a_part_was_left_out_is_not_in_force() -> None:
    partly = {
        "type": "PartiallyInvalid",
        "status": "True",
        "reason": "UnsupportedValue",
        "message": "Dropped rule(s): 1",
    }
    good = [{"type": name, "status": "True"} for name in ("Accepted", "ResolvedRefs")]
    route = {"status": {"parents": [{"conditions": [*good, partly]}]}}
    assert route_problem(route) == "a part of it was left out: UnsupportedValue: Dropped rule(s): 1"
    assert route_problem({"status": {"parents": [{"conditions": [*good, {**partly, "status": "False"}]}]}}) == ""
