"""The bench of the loop: its agents are good objects, and its figures are what they say."""

from typing import Any

import pytest
import yaml

from bench.loop.__main__ import AGENTS, COMPLETE, HALF_LENGTHS, document
from bench.loop.external_agent import deployment
from bench.loop.figures import Played, Turn, equal_weights, gains, missed, served_to_proven, summary, worse
from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_operator.agents.agent_children import actors, training_job
from learnloop_operator.agents.triggers import Trigger

from .test_learning_agent import world

KINDS: dict[str, Any] = {"LearningAgent": LearningAgentSpec, "RewardPolicy": RewardPolicySpec}


def played(returns: list[float], success: list[bool] | None = None, steps: list[int] | None = None) -> Played:
    return Played(returns, success or [], steps or [])


def turn(number: int = 1, **changes: Any) -> Turn:
    facts: dict[str, Any] = {
        "agent": "pole",
        "number": number,
        "proven": 100.0,
        "previous": played([20.0] * 40, [False] * 40, [50] * 40),
        "served": played([98.0] * 40, [True] * 40, [30] * 40),
        "seconds": 60.0,
        "artifact": f"{number}",
        "why": "promoted",
    }
    return Turn(**(facts | changes))


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_of_the_bench_is_a_good_object_and_makes_a_good_job(name: str) -> None:
    for number in range(1, 7):
        found = {item["kind"]: item for item in yaml.safe_load_all(document(name, number))}
        for kind, model in KINDS.items():
            said = found[kind]["spec"]
            assert _within(said, model.model_validate(said).to_kube()), "a field that the kind does not know"
        training_job(world(120, spec=found["LearningAgent"]["spec"]), number, Trigger("episodes", "enough"))
    assert set(COMPLETE) < set(AGENTS)


def test_the_pole_is_another_one_in_each_turn_and_its_code_runs() -> None:
    texts = [document("pole", number) for number in range(1, 6)]
    assert len(set(texts)) == len(HALF_LENGTHS) == 5
    (code,) = [item["data"]["poles.py"] for item in yaml.safe_load_all(texts[1]) if item["kind"] == "ConfigMap"]
    assert f"HALF_LENGTH = {HALF_LENGTHS[1]}" in code
    compile(code, "poles.py", "exec")


def test_the_external_agent_is_an_actor_of_the_same_installation_without_the_others_code() -> None:
    spec = next(item for item in yaml.safe_load_all(document("pole", 1)) if item["kind"] == "LearningAgent")["spec"]
    snapshot = world(120, spec=spec)
    made = deployment(actors(snapshot, snapshot.spec.task.environment, 1), snapshot.name)  # type: ignore[arg-type]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert (env["LEARNLOOP_ACTOR_AGENT"], env["LEARNLOOP_ACTOR_ENVIRONMENT"]) == ("clerk", "CartPole-v1")
    assert str(env["LEARNLOOP_ENDPOINT"]).startswith(("http://clerk.", "https://clerk."))
    assert "LEARNLOOP_ENVIRONMENT_DIRECTORY" not in env
    assert "learnloop-environment" not in str(made)


def test_figures_are_of_what_users_got() -> None:
    assert served_to_proven(turn()) == pytest.approx(0.98)
    assert served_to_proven(turn(proven=-200.0, served=played([-210.0]))) == pytest.approx(0.95)
    assert served_to_proven(turn(served=None)) is None
    assert equal_weights([turn(1), turn(2), turn(3, artifact="1"), turn(4, agent="other", artifact="1")]) == 1
    assert not worse(turn())
    assert worse(turn(served=played([10.0] * 40)))
    assert not worse(turn(served=played([19.0, 21.0] * 20)))
    assert gains([turn(1), turn(2, served=None)], ["pole"]) == (1.0, pytest.approx(0.4))
    assert gains([turn(1)], [])[1] is None


def test_every_goal_that_was_missed_is_named() -> None:
    good = summary([turn(1), turn(2)], ["pole"])
    assert missed(good, 1, 2) == []
    assert missed(good, 4, 5) == ["4 agents × 5 turns"]
    bad = summary([turn(1, served=played([10.0] * 40)), turn(2, artifact="1", served=None)], ["pole"])
    assert [goal.rsplit(" ", 1)[0].split(" at")[0] for goal in missed(bad, 1, 2)] == [
        "served_vs_proven_worst",
        "turns_with_equal_weights",
        "success_gain",
        "completion_time_gain",
        "worse_promotions",
    ]


def _within(said: Any, known: Any) -> bool:
    if isinstance(said, dict):
        return all(key in known and _within(value, known[key]) for key, value in said.items())
    if isinstance(said, list):
        return len(said) == len(known) and all(map(_within, said, known))
    return bool(said == known)


def test_a_mean_is_sure_when_its_error_is_small_or_nobody_waits_any_longer() -> None:
    assert Played([100.0, 101.0] * 20).is_sure(0.02, 300)
    assert not Played([0.0, 200.0] * 20).is_sure(0.02, 300)
    assert Played([0.0, 200.0] * 150).is_sure(0.02, 300)
    assert not Played([1.0]).is_sure(0.02, 300)
