"""TensorZero gets the arms by a file and a checksum."""

import hashlib
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from learnloop_api.wire.routing import Arm
from learnloop_operator.rollout.children import tensorzero
from learnloop_operator.rollout.decide import decide
from learnloop_operator.rollout.model.snapshot import Callers, Snapshot

from .test_language_rendering import speaking

STABLE, CANARY = "1a2b3c4d", "5e6f7a8b"
OLLAMA = {"url": "http://ollama:11434", "model": "small"}


def arms(canary: int = 10) -> list[Arm]:
    drawn = ((STABLE, "stable", 100 - canary), (CANARY, "canary", canary))
    said = [{"revision": one, "role": role, "weight": weight, "url": f"http://{one}"} for one, role, weight in drawn]
    return [Arm.model_validate(item) for item in said]


def registered(registration: Any, arms: list[Arm], **language: Any) -> dict[str, Any]:
    """What is told, by kind."""
    seen = asked(registration, **language)
    return {item["kind"]: item for item in tensorzero.registered(seen, arms)}


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
    assert tensorzero.registered(secret, arms()) == ()
    (said,) = tensorzero.refused(secret)
    assert "use routing.mode gateway" in said.message
    assert tensorzero.refused(seen) == ()
    known = secret.before.model_copy(update={"observed_generation": secret.generation})
    assert tensorzero.refused(replace(secret, before=known)) == (), "once for each change of the spec"


def test_a_gateway_of_ones_own_gets_the_file_alone() -> None:
    assert set(registered({"tensorZero": {"replicas": 0}}, arms())) == {"ConfigMap"}


def test_nobody_is_told_before_an_arm_serves_and_nothing_is_taken_away_meanwhile() -> None:
    seen = asked({"tensorZero": {}})
    assert decide(seen).outside == ()
    known = tensorzero.registered(seen, arms())
    again = replace(seen, children=known)
    assert tensorzero.strays(again, (), []) == ()


@pytest.mark.parametrize("left", [{"tensorZero": {"replicas": 0}}, None])
def test_what_is_told_no_more_is_taken_away(left: Any) -> None:
    before = asked({"tensorZero": {}})
    known = tensorzero.registered(before, arms())
    after = asked(left) if left else speaking(language={})
    after = replace(after, object=before.object, children=known)
    wanted = tensorzero.registered(after, arms())
    gone = tensorzero.strays(after, wanted, arms())
    kept = {item["kind"] for item in wanted}
    assert {ref.kind for ref in gone} == {item["kind"] for item in known} - kept


def test_a_registration_makes_no_other_revision_of_an_arm() -> None:
    assert asked({"tensorZero": {}}).desired.model == speaking(language={}).desired.model
