"""TensorZero gets the arms by a file."""

import tomllib
from dataclasses import replace

from learnloop_api.wire.routing import Arm
from learnloop_operator.rollout.children import tensorzero
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.state.snapshot import Callers, Snapshot

from .test_language_rendering import speaking

STABLE, CANARY = "1a2b3c4d", "5e6f7a8b"
OLLAMA = {"url": "http://ollama:11434", "model": "small"}


def arms(canary: int = 10) -> list[Arm]:
    drawn = ((STABLE, "stable", 100 - canary), (CANARY, "canary", canary))
    entries = [{"revision": one, "role": role, "weight": weight, "url": f"http://{one}"} for one, role, weight in drawn]
    return [Arm.model_validate(item) for item in entries]


def registered(arms: list[Arm], **language) -> dict:
    """The manifests, by kind."""
    return {item["kind"]: item for item in tensorzero.registered(situation(**language), arms)}


def situation(**language) -> Snapshot:
    return speaking(language={"registration": "tensorZero", **language})


def config(manifest: dict) -> dict:
    return tomllib.loads(manifest["ConfigMap"]["data"]["tensorzero.toml"])


def test_each_arm_is_a_variant_with_the_weight_of_the_table() -> None:
    rendered = config(registered(arms(), fallback=OLLAMA))
    name = next(iter(rendered["functions"]))
    function = rendered["functions"][name]
    assert function["type"] == "chat"
    assert function["experimentation"] == {
        "type": "static",
        "candidate_variants": {f"arm-{STABLE}": 90.0, f"arm-{CANARY}": 10.0},
    }
    for revision in (STABLE, CANARY):
        variant = function["variants"][f"arm-{revision}"]
        assert variant == {"type": "chat_completion", "model": f"{name}-{revision}"}
        model = rendered["models"][variant["model"]]
        assert model["routing"] == ["learnloop", "ollama"]
        assert set(model["routing"]) == set(model["providers"])


def test_every_variant_leads_to_learnloops_own_address_and_then_to_the_fallback() -> None:
    rendered = config(registered(arms(), fallback=OLLAMA))
    bases = {model["providers"]["learnloop"]["api_base"] for model in rendered["models"].values()}
    assert len(bases) == 1, "learnloop draws the arm: no variant goes past its table"
    assert bases.pop().endswith(".svc:8080/v1/")
    assert {model["providers"]["ollama"]["api_base"] for model in rendered["models"].values()} == {
        "http://ollama:11434/v1/"
    }
    alone = config(registered(arms()))
    assert {tuple(model["routing"]) for model in alone["models"].values()} == {("learnloop",)}


def test_where_a_gateway_draws_a_variant_leads_to_its_arm() -> None:
    telling = situation()
    routing = telling.spec.routing.model_copy(update={"mode": "gateway"})
    telling = replace(telling, spec=telling.spec.model_copy(update={"routing": routing}))
    rendered = tomllib.loads(tensorzero.config(telling, arms()))
    bases = sorted(model["providers"]["learnloop"]["api_base"] for model in rendered["models"].values())
    assert [STABLE in bases[0], CANARY in bases[1]] == [True, True]


def test_a_caller_brings_his_own_token_where_callers_are_known_and_none_where_they_are_not() -> None:
    telling = situation()
    anybody = replace(telling, defaults=replace(telling.defaults, callers=Callers("anybody", (), ())))
    for snapshot, where in ((telling, "dynamic::learnloop_token"), (anybody, "none")):
        rendered = tomllib.loads(tensorzero.config(snapshot, arms()))
        keys = {model["providers"]["learnloop"]["api_key_location"] for model in rendered["models"].values()}
        assert keys == {where}


def test_tensorzero_is_told_nothing_where_it_could_reach_the_fallback_alone() -> None:
    telling = situation()
    secret = replace(telling, defaults=replace(telling.defaults, tls=(telling.namespace,)))
    assert tensorzero.registered(secret, arms()) == ()
    (problem,) = tensorzero.refused(secret)
    assert "use routing.mode gateway" in problem.message
    assert tensorzero.refused(telling) == ()
    status = secret.before.model_copy(update={"observed_generation": secret.generation})
    assert tensorzero.refused(replace(secret, before=status)) == (), "once for each change of the spec"


def test_nobody_is_told_before_an_arm_serves_and_nothing_is_taken_away_meanwhile() -> None:
    telling = situation()
    assert decide(telling).outside == ()
    manifest = tensorzero.registered(telling, arms())
    again = replace(telling, children=manifest)
    assert tensorzero.strays(again, (), []) == ()


def test_what_is_told_no_more_is_taken_away() -> None:
    before = situation()
    manifest = tensorzero.registered(before, arms())
    after = replace(speaking(language={}), object=before.object, children=manifest)
    gone = tensorzero.strays(after, tensorzero.registered(after, arms()), arms())
    assert [ref.kind for ref in gone] == ["ConfigMap"]


def test_a_registration_makes_no_other_revision_of_an_arm() -> None:
    assert situation().desired.model == speaking(language={}).desired.model
