"""Episodes whose length depends on their outcome: identical arms stay identical at every raise, in every variant."""

import pytest

from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_api.names import ANNOTATION_OVERRIDE
from learnloop_operator.rollout.checks.unfinished_episodes import unfinished
from learnloop_operator.rollout.decide_deployment import current
from learnloop_operator.rollout.evidence import ArmEvidence, Openings, Verdict
from testing.simulation.episode_lengths import (
    ALIKE,
    BOUND,
    LENGTHS,
    RATIO,
    SEQUENTIAL,
    LengthsExperiment,
    ended,
    rollout,
)
from testing.simulation.rollout_cluster import MODES, uri


@pytest.mark.parametrize("replicas", [False, True], ids=["one Prometheus", "two in turn"])
@pytest.mark.parametrize("metric", [SEQUENTIAL, RATIO, BOUND], ids=["sequential", "ratio", "bound"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_an_identical_model_is_promoted_whichever_of_its_episodes_are_short(lengths, metric, replicas):
    for mode in MODES:
        cluster = rollout(metric, LENGTHS[lengths], seed=1, mode=mode)
        cluster.replicas = replicas
        assert ended(cluster) == "Healthy", cluster.status["verdict"]
        assert cluster.promotions


@pytest.mark.parametrize("seconds", [240, 600])
@pytest.mark.parametrize("metric", [SEQUENTIAL, RATIO, BOUND], ids=["sequential", "ratio", "bound"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_overrides_roll_back_no_identical_model(lengths: str, metric: dict, seconds: int) -> None:
    """An override leaves out the episodes that it touches, and of those the long ones more often."""
    cluster = rollout(metric, LENGTHS[lengths], seed=1, ordered_every=seconds)
    phase = ended(cluster, 3_600)
    assert "blockedRevision" not in cluster.status, cluster.status["verdict"]
    assert cluster.status["overrides"], "nothing was ordered"
    assert seconds < 600 or phase == "Healthy", cluster.status["verdict"]


def test_endings_are_compared_again_when_the_longest_episodes_since_an_override_have_ended() -> None:
    cluster = rollout(SEQUENTIAL, LENGTHS["failures are short"], seed=1)
    cluster.run(400)
    before = current(cluster.snapshot()).shares_since()
    cluster.annotations[ANNOTATION_OVERRIDE] = "instead=stop&for=60&reason=it+hurts"
    cluster.run(30)
    began = current(cluster.snapshot()).shares_since()
    cluster.run(90)
    over = current(cluster.snapshot()).shares_since()
    assert before < began < over


def test_a_worse_model_is_rolled_back_although_its_failures_are_the_long_episodes() -> None:
    cluster = rollout(SEQUENTIAL, LENGTHS["successes are short"], seed=1, chances=(0.9, 0.6))
    assert ended(cluster) == "RolledBack"
    assert not cluster.promotions


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_no_arm_of_an_experiment_is_beaten_by_the_length_of_its_episodes(lengths: str, mode: str) -> None:
    cluster = LengthsExperiment((0.9, 0.9), (50,)).by(mode)
    cluster.lengths = LENGTHS[lengths]
    cluster.run(190)
    cluster.start().run(600)
    assert [arm["standing"] for arm in cluster.status["experiment"]["arms"]] == ["playing"] * 2
    assert cluster.arm("a")["episodes"] > 1_000, "nothing was compared"


@pytest.mark.parametrize("mode", MODES)
def test_an_arm_of_an_experiment_that_hangs_is_withdrawn_although_its_survivors_do_well(mode: str) -> None:
    cluster = LengthsExperiment((0.5, 0.9), (50,)).by(mode)
    cluster.lengths = ALIKE
    cluster.spec["analysis"]["episodeDeadlineSeconds"] = 30
    cluster.hangs = {uri(1): 0.6}
    cluster.start().run(300)
    assert cluster.arm("a")["standing"] == "withdrawn"
    assert "have not ended" in cluster.arm("a")["message"]
    assert not cluster.promotions


def test_arms_of_an_experiment_share_what_the_check_of_overdue_episodes_may_err_with() -> None:
    canary, stable = (ArmEvidence(openings=Openings(60, 60, closed)) for closed in (33, 60))
    analysis = Analysis(max_overdue=0.2)
    alone, among = (unfinished(analysis, canary, stable, "a", "stable", arms=arms) for arms in (1, 4))
    assert (alone.verdict, among.verdict) == (Verdict.BREACH, Verdict.HOLD)
