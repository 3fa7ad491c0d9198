"""Hostile PodOptions, every field, gain nothing by what the operator renders, and the attack itself can see."""

import pytest

from bench.adversary import escalation
from learnloop_api.kinds.base import PodOptions
from learnloop_operator.core.allowed_pods import PodRules


def test_no_field_of_a_pod_gets_its_author_what_the_platform_does_not_allow() -> None:
    finding = escalation.attack(200, 20)
    assert finding.breaches == []
    assert finding.tried >= 800
    assert finding.figures["pods"] > 50, "what is allowed is made"


def test_every_field_of_pod_options_is_tried() -> None:
    fields = set(PodOptions.model_json_schema(by_alias=True)["properties"])
    assert fields == set(escalation.FIELDS)


def test_the_attack_gets_through_where_nothing_holds(monkeypatch) -> None:
    everything = ("hostPath", "nfs", "projected", "emptyDir")
    monkeypatch.setattr(escalation, "RULES", PodRules(volume_kinds=everything, env_sources=("fileKeyRef",)))
    breaches = " ".join(escalation.attack(60, 20).breaches)
    for flaw in ("image evil", "volume hostPath", "a token of another audience", "ServiceAccount admin", "env A"):
        assert flaw in breaches


@pytest.mark.parametrize("pod", [{"hostNetwork": True}, {"securityContext": {}}])
def test_a_pod_that_is_not_restricted_is_seen(pod: dict) -> None:
    fine = {"containers": [], "volumes": [], "securityContext": {"runAsNonRoot": True}}
    assert list(escalation.flaws({**fine, **pod})) == ["is not restricted"]
