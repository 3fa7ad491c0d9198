"""Routers of others are told of the arms: TensorZero by a file and a checksum, llm-d by a rewrite with weights."""

import hashlib
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from learnloop_api.kinds.base import PodOptions
from learnloop_api.wire.routing import Arm
from learnloop_operator.rollout.children import outer_routers, tensorzero
from learnloop_operator.rollout.decide import decide
from learnloop_operator.rollout.model.snapshot import ArmWorld, Callers, Model, Snapshot

from .test_language_rendering import BASE, speaking

STABLE, CANARY = "1a2b3c4d", "5e6f7a8b"
OLLAMA = {"url": "http://ollama:11434", "model": "small"}
VLLM = {"url": "http://vllm:8000", "model": "llama", "adapterFolder": "/adapters"}


def arms(canary: int = 10) -> list[Arm]:
    drawn = ((STABLE, "stable", 100 - canary), (CANARY, "canary", canary))
    said = [{"revision": one, "role": role, "weight": weight, "url": f"http://{one}"} for one, role, weight in drawn]
    return [Arm.model_validate(item) for item in said]


def registered(registration: Any, arms: list[Arm], **language: Any) -> dict[str, Any]:
    """What is told, by kind."""
    seen = asked(registration, **language)
    return {item["kind"]: item for item in outer_routers.told(seen, arms)}


def asked(registration: Any, **language: Any) -> Snapshot:
    seen = speaking(language={"registration": registration, **language})
    images = {**seen.defaults.model_servers, "tensorzero": "tensorzero/gateway:2026.6.0"}
    return replace(seen, defaults=replace(seen.defaults, model_servers=images))


def config(told: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(told["ConfigMap"]["data"]["tensorzero.toml"])


def test_each_arm_is_a_variant_with_the_weight_of_the_table() -> None:
    found = config(registered({"tensorZero": {}}, arms(), fallback=OLLAMA))
    name = next(iter(found["functions"]))
    function = found["functions"][name]
    assert function["type"] == "chat"
    assert function["experimentation"] == {
        "type": "static",
        "candidate_variants": {f"arm-{STABLE}": 90.0, f"arm-{CANARY}": 10.0},
    }
    for revision in (STABLE, CANARY):
        variant = function["variants"][f"arm-{revision}"]
        assert variant == {"type": "chat_completion", "model": f"{name}-{revision}"}
        model = found["models"][variant["model"]]
        assert model["routing"] == ["learnloop", "ollama"]
        assert set(model["routing"]) == set(model["providers"])


def test_every_variant_leads_to_learnloops_own_address_and_then_to_the_fallback() -> None:
    found = config(registered({"tensorZero": {}}, arms(), fallback=OLLAMA))
    bases = {model["providers"]["learnloop"]["api_base"] for model in found["models"].values()}
    assert len(bases) == 1, "learnloop draws the arm: no variant goes past its table"
    assert bases.pop().endswith(".svc:8080/v1/")
    assert {model["providers"]["ollama"]["api_base"] for model in found["models"].values()} == {
        "http://ollama:11434/v1/"
    }
    alone = config(registered({"tensorZero": {}}, arms()))
    assert {tuple(model["routing"]) for model in alone["models"].values()} == {("learnloop",)}


def test_where_a_gateway_draws_a_variant_leads_to_its_arm() -> None:
    seen = asked({"tensorZero": {}})
    routing = seen.spec.routing.model_copy(update={"mode": "gateway"})
    seen = replace(seen, spec=seen.spec.model_copy(update={"routing": routing}))
    found = tomllib.loads(tensorzero.config(seen, arms()))
    bases = sorted(model["providers"]["learnloop"]["api_base"] for model in found["models"].values())
    assert [STABLE in bases[0], CANARY in bases[1]] == [True, True]


def test_a_caller_brings_his_own_token_where_callers_are_known_and_none_where_they_are_not() -> None:
    seen = asked({"tensorZero": {}})
    anybody = replace(seen, defaults=replace(seen.defaults, callers=Callers("anybody", (), ())))
    for snapshot, where in ((seen, "dynamic::learnloop_token"), (anybody, "none")):
        found = tomllib.loads(tensorzero.config(snapshot, arms()))
        keys = {model["providers"]["learnloop"]["api_key_location"] for model in found["models"].values()}
        assert keys == {where}


def test_pods_begin_anew_when_the_file_changes_and_only_then() -> None:
    def checksum(weight: int) -> tuple[str, str]:
        told = registered({"tensorZero": {"replicas": 2}}, arms(weight))
        pods = told["Deployment"]["spec"]["template"]
        text = told["ConfigMap"]["data"]["tensorzero.toml"]
        return pods["metadata"]["annotations"]["learnloop.dev/config-checksum"], hashlib.sha256(
            text.encode()
        ).hexdigest()

    assert checksum(10) == checksum(10)
    assert checksum(10) != checksum(25)
    assert all(one == other for one, other in (checksum(0), checksum(10)))


def test_the_gateway_is_pinned_has_no_rights_and_reaches_nothing_else() -> None:
    told = registered({"tensorZero": {}}, arms(), fallback={**OLLAMA, "keyRef": {"name": "ollama"}})
    pod = told["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "tensorzero/gateway:2026.6.0"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (key,) = container["env"]
    assert key["valueFrom"] == {"secretKeyRef": {"name": "ollama", "key": "key"}}
    policy = told["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == told["Service"]["spec"]["selector"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}


def test_tensorzero_is_told_nothing_where_it_could_reach_the_fallback_alone() -> None:
    seen = asked({"tensorZero": {}})
    secret = replace(seen, defaults=replace(seen.defaults, tls=(seen.namespace,)))
    assert outer_routers.told(secret, arms()) == ()
    (said,) = outer_routers.refused(secret)
    assert "use routing.mode gateway" in said.message
    assert outer_routers.refused(seen) == ()
    known = secret.before.model_copy(update={"observed_generation": secret.generation})
    assert outer_routers.refused(replace(secret, before=known)) == (), "once for each change of the spec"


def test_a_gateway_of_ones_own_gets_the_file_alone() -> None:
    assert set(registered({"tensorZero": {"replicas": 0}}, arms())) == {"ConfigMap"}


def test_llm_d_rewrites_the_name_to_the_adapters_by_weight() -> None:
    rewrite = registered({"llmD": {"pool": "llama"}}, arms(25), server=VLLM)["InferenceModelRewrite"]
    name = rewrite["metadata"]["name"]
    assert rewrite["apiVersion"] == "llm-d.ai/v1alpha2"
    assert rewrite["spec"] == {
        "poolRef": {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama"},
        "rules": [
            {
                "matches": [{"model": {"type": "Exact", "value": name}}],
                "targets": [
                    {"modelRewrite": f"{name}-{STABLE}", "weight": 75},
                    {"modelRewrite": f"{name}-{CANARY}", "weight": 25},
                ],
            }
        ],
    }


def test_llm_d_is_told_no_arm_without_weight_and_calls_the_base_model_by_its_own_name() -> None:
    seen = asked({"llmD": {"pool": "llama"}}, server=VLLM)
    world = ArmWorld(pod=PodOptions(), model=Model(STABLE, f"base://{BASE}", BASE))
    (rewrite,) = outer_routers.told(replace(seen, arms={STABLE: world}), arms(0))
    assert rewrite["spec"]["rules"][0]["targets"] == [{"modelRewrite": "llama", "weight": 100}]


def test_nobody_is_told_before_an_arm_serves_and_nothing_is_taken_away_meanwhile() -> None:
    seen = asked({"tensorZero": {}})
    assert decide(seen).outside == ()
    known = outer_routers.told(seen, arms())
    again = replace(seen, children=known)
    assert outer_routers.strays(again, (), []) == ()


@pytest.mark.parametrize("left", [{"tensorZero": {"replicas": 0}}, {"llmD": {"pool": "llama"}}, None])
def test_what_is_told_no_more_is_taken_away(left: Any) -> None:
    before = asked({"tensorZero": {}, "llmD": {"pool": "llama"}}, server=VLLM)
    known = outer_routers.told(before, arms())
    after = asked(left, server=VLLM) if left else speaking(language={"server": VLLM})
    after = replace(after, object=before.object, children=known)
    wanted = outer_routers.told(after, arms())
    gone = outer_routers.strays(after, wanted, arms())
    kept = {item["kind"] for item in wanted}
    assert {ref.kind for ref in gone} == {item["kind"] for item in known} - kept


def test_a_registration_makes_no_other_revision_of_an_arm() -> None:
    assert asked({"tensorZero": {}}).desired.model == speaking(language={}).desired.model
