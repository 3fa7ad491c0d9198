"""Shadow steps in whole simulated rollouts: nobody meets the canary before its copies have spoken for it."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.kinds.rollouts.gates import ShadowCheck
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.gather_evidence import shadow_evidence, shadow_query
from learnloop_operator.prometheus.queries import Arms
from learnloop_operator.rollout.children.routing_table import read
from learnloop_operator.rollout.decide import decide
from learnloop_operator.rollout.evidence import ShadowEvidence, Verdict
from learnloop_operator.rollout.judging.shadow import checks
from learnloop_operator.rollout.model.snapshot import ArmWorld, Defaults, Snapshot, resolve, revision_of
from testing.simulation.rollout_cluster import BAD, BETTER, STEPS, digest, uri
from testing.simulation.shadow_cluster import BARS, ShadowCluster


@pytest.fixture
def serving() -> ShadowCluster:
    cluster = ShadowCluster()
    cluster.run(10)
    assert cluster.status["phase"] == "Healthy"
    return cluster


def test_a_good_model_passes_its_shadow_step_and_climbs(serving: ShadowCluster) -> None:
    serving.wish(1, BETTER)
    serving.run(12)
    table = read(serving.config_map).table
    assert table is not None
    assert table.mirror is not None
    assert (serving.status["stepText"], serving.weight(uri(1))) == ("1/5 shadow", 0)
    condition = next(item for item in serving.status["conditions"] if item["type"] == "Shadowing")
    assert (condition["status"], condition["reason"]) == ("True", "MirroredByServers")
    assert serving.entry.get(names.LABEL_REVISION) == serving.status["stable"]["revision"]
    while not serving.weight(uri(1)):
        serving.run(1)
    assert names.LABEL_REVISION not in serving.entry, "the canary's pods joined the address users know"
    assert serving.status["shadow"]["requests"] >= 60
    assert serving.settle() == "Healthy"
    assert serving.status["stable"]["uri"] == uri(1)
    assert serving.status["shadow"]["message"].startswith(f"{serving.status['shadow']['requests']} requests compared, ")


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"failing_copies": 0.5}, "error rate "),
        ({"slow": 0.5}, "share slower than 0.02 s "),
        ({"agreement": 0.2}, "agreement "),
    ],
)
def test_a_gross_breach_in_shadow_takes_the_canary_back_before_its_first_episode(
    serving: ShadowCluster, trouble: dict[str, float], said: str
) -> None:
    for name, value in trouble.items():
        setattr(serving, name, value)
    serving.wish(1, BETTER)
    serving.run(60)
    message = serving.status["blockedRevision"]["message"]
    assert message.startswith(f"RolledBack before its first episode: {said}")
    assert not [arm for _, arm, _ in serving.episodes if arm == serving.status["blockedRevision"]["revision"]]
    table = read(serving.config_map).table
    assert table is not None
    assert table.mirror is None


def test_a_bad_model_is_still_caught_by_its_first_real_step(serving: ShadowCluster) -> None:
    serving.wish(1, BAD)
    serving.run(150)
    assert serving.status["blockedRevision"]["message"].startswith("RolledBack at 10 %: return of the canary")


def test_without_copies_or_prometheus_a_shadow_step_holds_and_says_why(serving: ShadowCluster) -> None:
    serving.traffic = False
    serving.wish(1, BETTER)
    serving.run(120)
    assert "waiting for 60 compared requests" in serving.status["verdict"]
    serving.traffic, serving.prometheus = True, False
    serving.run(60)
    assert serving.status["verdict"] == "in shadow: no evidence: Prometheus does not answer"
    assert serving.weight(uri(1)) == 0
    assert "blockedRevision" not in serving.status


def test_a_shadow_step_pauses_for_an_approval_like_any_other() -> None:
    cluster = ShadowCluster(steps=[{"weight": 0, "shadow": BARS, "pause": True, "minSeconds": 40}, *STEPS])
    cluster.run(10)
    cluster.wish(1, BETTER)
    cluster.run(120)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 0)
    cluster.annotations[names.ANNOTATION_APPROVE] = f"{cluster.status['canary']['revision']}/1"
    assert cluster.settle() == "Healthy"


def test_two_shadow_steps_count_their_own_copies_each() -> None:
    few = {"weight": 0, "shadow": {**BARS, "percent": 10}}
    cluster = ShadowCluster(steps=[few, {"weight": 0, "shadow": BARS}, *STEPS])
    cluster.run(10)
    cluster.wish(1, BETTER)
    assert cluster.settle() == "Healthy"
    assert cluster.promotions


def test_figures_are_rewritten_when_they_tell_something_new(serving: ShadowCluster) -> None:
    serving.spec["rollout"]["steps"][0]["shadow"] = {**BARS, "minRequests": 100_000}
    serving.wish(1, BETTER)
    serving.run(20)
    seen = set()
    for _ in range(120):
        serving.run(1)
        seen.add(str(serving.status))
    assert len(seen) <= 25, f"{len(seen)} writes in two minutes of waiting"


def bars(**more: Any) -> ShadowCheck:
    return ShadowCheck.model_validate(more)


def test_an_unlucky_start_neither_passes_nor_rolls_back() -> None:
    seen = ShadowEvidence(compared=40, agreed=20, errors=1)
    verdicts = [item.verdict for item in checks(bars(minAgreement=0.6), seen, 0.01)]
    assert verdicts == [Verdict.HOLD, Verdict.HOLD]


def test_prometheus_answer_becomes_evidence() -> None:
    def sample(signal: str, value: float, **labels: str) -> Sample:
        return Sample({"learnloop_signal": signal, **labels}, value)

    samples = [sample("compared", 10), sample("agreed", 9), sample("errors", 1)]
    seen = shadow_evidence([*samples, sample("within", 8, le="0.02"), sample("within", 10, le="+Inf")])
    assert seen is not None
    assert (seen.compared, seen.agreed, seen.errors) == (10, 9, 1)
    assert seen.within == {0.02: 8, math.inf: 10}
    assert shadow_evidence([]) is None
    query = shadow_query(Arms("ns", "md", ["aaaaaaaa"]), 60)
    assert query.count('revision="aaaaaaaa"') == 4 * 4 + 3 + 2 + 1


def in_shadow(problem: str, percent: int = 20, mirror: str = "detect", **more: str) -> Snapshot:
    revision = revision_of(uri(1), digest(1), PodOptions())
    status = {
        "stable": {"revision": "11111111", "uri": "uniform://discrete/2?observations=4", "readyReplicas": 1},
        "canary": {"revision": revision, "uri": uri(1), "sha256": digest(1), "readyReplicas": 1},
        "step": 0,
        "weight": 0,
        "rolloutStartedAt": "2025-12-31T23:59:00Z",
        "stepStartedAt": "2025-12-31T23:59:30Z",
    }
    steps = [{"weight": 0, "shadow": {"percent": percent}}, {"weight": 100}]
    spec = ModelDeploymentSpec.model_validate(
        {
            "model": {"uri": uri(1), "sha256": digest(1)},
            "routing": {"mode": "gateway", "gateway": {"name": "gw", "requestMirror": mirror}},
            "rollout": {"steps": steps},
        }
    )
    return Snapshot(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        object={"metadata": {"name": "md", "namespace": "ns", "uid": "u"}, "apiVersion": "v1", "kind": "X"},
        spec=spec,
        before=ModelDeploymentStatus.model_validate(status),
        desired=resolve(spec, None),
        defaults=Defaults("serving:1", "http://data:8080"),
        arms={"11111111": ArmWorld(ready=1), revision: ArmWorld(ready=1)},
        mirror_problem=problem,
        **more,
    )


def manifest(seen: Snapshot, kind: str) -> Any:
    return next(item for item in decide(seen).apply if item["kind"] == kind)


def test_a_gateway_that_can_copies_everything_but_the_opening_of_episodes() -> None:
    seen = in_shadow("")
    revision = revision_of(uri(1), digest(1), PodOptions())
    rules = manifest(seen, "HTTPRoute")["spec"]["rules"]
    mirrored = [rule for rule in rules if rule.get("filters")]
    backend = {"group": "", "kind": "Service", "name": f"md-{revision}", "port": 8080}
    assert mirrored[0]["filters"] == [
        {"type": "RequestMirror", "requestMirror": {"backendRef": backend, "percent": 20}}
    ]
    assert mirrored[0]["matches"][0]["headers"][0]["value"] == "11111111"
    assert mirrored[1]["matches"] == [{"path": {"type": "PathPrefix", "value": "/v2"}}]
    assert "filters" not in rules[-1], "opening an episode must not be copied"
    table = read(manifest(seen, "ConfigMap")).table
    assert table is not None
    assert table.mirror is not None
    assert table.mirror.by_gateway


def test_a_gateway_that_cannot_gets_no_filter_and_the_condition_says_who_copies() -> None:
    problem = "GatewayClass edge does not list HTTPRouteRequestMirror in supportedFeatures"
    seen = in_shadow(problem)
    assert not [rule for rule in manifest(seen, "HTTPRoute")["spec"]["rules"] if rule.get("filters")]
    table = read(manifest(seen, "ConfigMap")).table
    assert table is not None
    assert table.mirror is not None
    assert not table.mirror.by_gateway
    condition = next(item for item in decide(seen).status["conditions"] if item["type"] == "Shadowing")
    assert condition["reason"] == "MirroredByServers"
    assert problem in condition["message"]


NO_PERCENT = "GatewayClass edge does not list HTTPRouteRequestPercentageMirror in supportedFeatures"


@pytest.mark.parametrize(
    ("percent", "mirror", "more", "copies", "said"),
    [
        (20, "detect", {}, True, ", and the gateway 20 % of the requests but the opening of episodes"),
        (100, "detect", {}, True, ", and the gateway all requests but the opening of episodes"),
        (100, "detect", {"percent_problem": NO_PERCENT}, True, ", and the gateway all requests but the opening"),
        (
            20,
            "detect",
            {"percent_problem": NO_PERCENT},
            False,
            f"; the gateway does not: it might copy every request where 20 % are asked: {NO_PERCENT}",
        ),
        (
            20,
            "supported",
            {"percent_problem": "nobody knows"},
            True,
            ", and the gateway is asked for 20 % of the requests but the opening of episodes and may copy all of them",
        ),
        (
            20,
            "detect",
            {"route_problem": "NotAllowedByListeners: no"},
            True,
            "; the gateway does not: the HTTPRoute is not in force as it stands: NotAllowedByListeners: no",
        ),
    ],
)
def test_the_condition_claims_of_the_gateway_what_it_has_said_it_does(
    percent: int, mirror: str, more: dict[str, str], copies: bool, said: str
) -> None:
    seen = in_shadow("", percent, mirror, **more)
    filters = [rule for rule in manifest(seen, "HTTPRoute")["spec"]["rules"] if rule.get("filters")]
    assert bool(filters) == copies
    condition = next(item for item in decide(seen).status["conditions"] if item["type"] == "Shadowing")
    assert said in condition["message"]
    by_gateway = copies and "route_problem" not in more
    assert condition["reason"] == ("MirroredByGateway" if by_gateway else "MirroredByServers")
