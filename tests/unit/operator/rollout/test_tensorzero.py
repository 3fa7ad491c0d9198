"""TensorZero gets the arms by a file."""

import tomllib
from dataclasses import replace
from typing import Any

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


def registered(arms: list[Arm], **language: Any) -> dict[str, Any]:
    """What is written, by kind."""
    return {item["kind"]: item for item in tensorzero.registered(asked(**language), arms)}


def asked(**language: Any) -> Snapshot:
    return speaking(language={"registration": "tensorZero", **language})


def config(told: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(told["ConfigMap"]["data"]["tensorzero.toml"])


def test_each_arm_is_a_variant_with_the_weight_of_the_table() -> None:
    found = config(registered(arms(), fallback=OLLAMA))
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
    found = config(registered(arms(), fallback=OLLAMA))
    bases = {model["providers"]["learnloop"]["api_base"] for model in found["models"].values()}
    assert len(bases) == 1, "learnloop draws the arm: no variant goes past its table"
    assert bases.pop().endswith(".svc:8080/v1/")
    assert {model["providers"]["ollama"]["api_base"] for model in found["models"].values()} == {
        "http://ollama:11434/v1/"
    }
    alone = config(registered(arms()))
    assert {tuple(model["routing"]) for model in alone["models"].values()} == {("learnloop",)}


def test_where_a_gateway_draws_a_variant_leads_to_its_arm() -> None:
    seen = asked()
    routing = seen.spec.routing.model_copy(update={"mode": "gateway"})
    seen = replace(seen, spec=seen.spec.model_copy(update={"routing": routing}))
    found = tomllib.loads(tensorzero.config(seen, arms()))
    bases = sorted(model["providers"]["learnloop"]["api_base"] for model in found["models"].values())
    assert [STABLE in bases[0], CANARY in bases[1]] == [True, True]


def test_a_caller_brings_his_own_token_where_callers_are_known_and_none_where_they_are_not() -> None:
    seen = asked()
    anybody = replace(seen, defaults=replace(seen.defaults, callers=Callers("anybody", (), ())))
    for snapshot, where in ((seen, "dynamic::learnloop_token"), (anybody, "none")):
        found = tomllib.loads(tensorzero.config(snapshot, arms()))
        keys = {model["providers"]["learnloop"]["api_key_location"] for model in found["models"].values()}
        assert keys == {where}


def test_tensorzero_is_told_nothing_where_it_could_reach_the_fallback_alone() -> None:
    seen = asked()
    secret = replace(seen, defaults=replace(seen.defaults, tls=(seen.namespace,)))
    assert tensorzero.registered(secret, arms()) == ()
    (said,) = tensorzero.refused(secret)
    assert "use routing.mode gateway" in said.message
    assert tensorzero.refused(seen) == ()
    known = secret.before.model_copy(update={"observed_generation": secret.generation})
    assert tensorzero.refused(replace(secret, before=known)) == (), "once for each change of the spec"


def test_nobody_is_told_before_an_arm_serves_and_nothing_is_taken_away_meanwhile() -> None:
    seen = asked()
    assert decide(seen).outside == ()
    known = tensorzero.registered(seen, arms())
    again = replace(seen, children=known)
    assert tensorzero.strays(again, (), []) == ()


def test_what_is_told_no_more_is_taken_away() -> None:
    before = asked()
    known = tensorzero.registered(before, arms())
    after = replace(speaking(language={}), object=before.object, children=known)
    gone = tensorzero.strays(after, tensorzero.registered(after, arms()), arms())
    assert [ref.kind for ref in gone] == ["ConfigMap"]


def test_a_registration_makes_no_other_revision_of_an_arm() -> None:
    assert asked().desired.model == speaking(language={}).desired.model
