"""Shadow steps in whole simulated rollouts: no user meets the canary before its copies have spoken for it."""

import math
from dataclasses import replace

import pytest

from learnloop_api import names
from learnloop_api.kinds.rollouts.gates import ShadowCheck
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.gather_evidence import shadow_evidence, shadow_query
from learnloop_operator.prometheus.queries import Arms
from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.evidence import ShadowEvidence, Verdict
from learnloop_operator.rollout.judging.shadow_step import checks
from testing.simulation.rollout_cluster import BAD, BETTER, STEPS, uri
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
    assert table.mirror is not None
    assert (serving.status["stepText"], serving.weight(uri(1))) == ("1/5 shadow", 0)
    condition = next(item for item in serving.status["conditions"] if item["type"] == "Shadowing")
    assert (condition["status"], condition["reason"]) == ("True", "Mirrored")
    assert serving.entry.get(names.LABEL_REVISION) == serving.status["stable"]["revision"]
    while not serving.weight(uri(1)):
        serving.run(1)
    assert names.LABEL_REVISION not in serving.entry, "the canary's pods joined the address users know"
    assert serving.status["shadow"]["requests"] >= 60
    assert serving.settle() == "Healthy"
    assert serving.status["stable"]["uri"] == uri(1)
    assert serving.status["shadow"]["message"].startswith(f"{serving.status['shadow']['requests']} requests compared, ")


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ({"failing_copies": 0.5}, "error rate "),
        ({"slow": 0.5}, "share slower than 0.02 s "),
        ({"agreement": 0.2}, "agreement "),
    ],
)
def test_a_gross_breach_in_shadow_takes_the_canary_back_before_its_first_episode(serving, trouble, sentence):
    for name, value in trouble.items():
        setattr(serving, name, value)
    serving.wish(1, BETTER)
    serving.run(60)
    message = serving.status["blockedRevision"]["message"]
    assert message.startswith(f"RolledBack before its first episode: {sentence}")
    assert not [arm for _, arm, _ in serving.episodes if arm == serving.status["blockedRevision"]["revision"]]
    table = read(serving.config_map).table
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


def bars(**more) -> ShadowCheck:
    return ShadowCheck.model_validate(more)


def test_an_unlucky_start_neither_passes_nor_rolls_back() -> None:
    evidence = ShadowEvidence(compared=40, agreed=20, errors=1)
    verdicts = [item.verdict for item in checks(bars(minAgreement=0.6), evidence, 0.01)]
    assert verdicts == [Verdict.HOLD, Verdict.HOLD]


def test_disagreement_within_a_few_episodes_is_not_yet_certain() -> None:
    evidence = ShadowEvidence(compared=400, agreed=260)
    limits = bars(minAgreement=0.9, percent=50)

    def judged(episodes: float | None) -> Verdict:
        return checks(limits, replace(evidence, episodes=episodes), 0.01)[-1].verdict

    assert [judged(few) for few in (0, 4)] == [Verdict.HOLD, Verdict.HOLD]
    assert [judged(many) for many in (800, None)] == [Verdict.BREACH, Verdict.BREACH]


def test_prometheus_answer_becomes_evidence() -> None:
    def sample(signal: str, value: float, **labels: str) -> Sample:
        return Sample({"learnloop_signal": signal, **labels}, value)

    samples = [sample("compared", 10), sample("agreed", 9), sample("errors", 1)]
    evidence = shadow_evidence([*samples, sample("within", 8, le="0.02"), sample("within", 10, le="+Inf")])
    assert (evidence.compared, evidence.agreed, evidence.errors) == (10, 9, 1)
    assert evidence.within == {0.02: 8, math.inf: 10}
    assert evidence.episodes is None
    again = shadow_evidence([*samples, sample("episodes", 3)])
    assert again.episodes == 3
    assert shadow_evidence([]) is None
    query = shadow_query(Arms("ns", "md", ["aaaaaaaa"]), 60)
    assert query.count('revision="aaaaaaaa"') == 4 * 5 + 4 + 2 + 1
