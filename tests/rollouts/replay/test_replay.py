"""History through the same decide: what was recorded of a rollout is judged again under a specification."""

from datetime import datetime, timedelta
from typing import Any

from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.model.snapshot import Model, revision_of
from learnloop_operator.rollout.replay import Look, Replay
from testing.simulation.opened_episodes import ended_at_once
from testing.simulation.rollout_cluster import BAD, BETTER, STEPS, Cluster, histogram

OLD, NEW = Model("bbbbbbbb", "https://m/0"), Model("aaaaaaaa", "https://m/1")


def record(quality: float, seconds: int = 600, each: float = 1.0) -> list[tuple[float, str, float]]:
    """Episodes of both arms, one of the canary each `each` seconds: (second, revision, return)."""
    canary = [(second * each, NEW.revision, quality) for second in range(int(seconds / each))]
    return [*canary, *((float(second), OLD.revision, 300.0) for second in range(seconds))]


def replayed(episodes: list[tuple[float, str, float]], seconds: int = 600, **spec: Any) -> list[Look]:
    """Every look that tells something new, and the last one."""
    began = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    wanted = {
        "model": {"uri": "https://m/1", "sha256": "ab" * 32},
        "rollout": {"steps": spec.get("steps", STEPS), "keepForSeconds": 10},
        "analysis": {"intervalSeconds": 5},
    }
    asked = ModelDeploymentSpec.model_validate(wanted)
    replay = Replay("ns", "md", asked, NEW, OLD, began, {arm for _, arm, _ in episodes})
    told: list[Look] = []
    for second in range(0, seconds, 5):
        now = began + timedelta(seconds=second)
        arms = {
            window.revision: seen(episodes, window.revision, second - window.seconds, second, now)
            for window in replay.asked(now)
        }
        look = replay.look(now, Evidence(arms))
        if look.differs(told[-1] if told else None):
            told.append(look)
        if replay.over:
            break
    return told if look is told[-1] else [*told, look]


def seen(
    episodes: list[tuple[float, str, float]], revision: str, since: float, until: float, now: datetime
) -> ArmEvidence:
    returns = [value for at, arm, value in episodes if arm == revision and since < at <= until]
    mean = sum(returns) / len(returns) if returns else None
    known = 1.0 if returns else None, 0.0 if returns else None
    return ArmEvidence(
        len(returns), mean, *known, returns=histogram(returns), seen_at=now, openings=ended_at_once(len(returns))
    )


def test_a_recorded_bad_canary_would_have_been_rolled_back_at_its_first_step() -> None:
    told = replayed(record(BAD))
    assert [look.weight for look in told][-2:] == [10, 0]
    assert told[-1].phase == "RolledBack"
    assert told[-1].sentence.startswith("RolledBack at 10 %: return of the canary 9 vs 300 of stable")
    assert (told[-1].at - told[0].at).total_seconds() < 60


def test_a_recorded_good_canary_would_have_climbed_to_the_top() -> None:
    told = replayed(record(BETTER))
    weights = [look.weight for look in told]
    assert sorted(set(weights)) == [0, 10, 25, 50, 100]
    assert weights == sorted(weights)
    assert told[-1].reason == "GuardOver" or told[-1].phase in ("Healthy", "Guarding")


def test_a_dry_history_holds() -> None:
    told = replayed([])
    assert {look.weight for look in told} == {0, 10}
    assert "6 more needed" in told[-1].sentence
    assert told[-1].phase not in ("RolledBack", "Guarding", "Healthy")


def test_a_pause_is_told_and_approved() -> None:
    told = replayed(record(BETTER), steps=[{**step, "pause": step["weight"] == 25} for step in STEPS])
    assert any("(the replay approves)" in look.sentence and look.weight == 25 for look in told)
    assert told[-1].weight == 100


GUEST = {"name": "other", "uri": "https://m/2", "sha256": "cd" * 32, "weight": 20}
OTHER = revision_of(GUEST["uri"], GUEST["sha256"], PodOptions())
RETURNS = {"type": "return", "returnRange": {"lowest": 0.0, "highest": 500.0}}


def raced(canary: float, guest: float | None, seconds: int = 1_500, **step: Any) -> list[Look]:
    """A history in which all arms played an episode a second, through an experiment at the second step."""
    means = {OLD.revision: 300.0, NEW.revision: canary} | ({} if guest is None else {OTHER: guest})
    episodes = [(float(second), arm, mean) for second in range(seconds) for arm, mean in means.items()]
    asked = {"arms": [GUEST], "metric": RETURNS, "minEpisodes": 50, "maxEpisodes": 2_000}
    steps = [STEPS[0], {"weight": 30, "minEpisodes": 6, "experiment": asked, **step}, *STEPS[2:]]
    return replayed(episodes, seconds, steps=steps)


def test_an_experiment_of_the_past_is_raced_again_and_its_winner_takes_over() -> None:
    told = raced(310.0, 450.0)
    said = " ".join(text for look in told for text in look.raced)
    assert f"experiment won by other ({OTHER}): return: other 450 [" in said
    assert f"other goes on in place of {NEW.revision}" in said
    assert told[-1].weight == 100
    assert told[-1].sentence == f"{OTHER} serves every episode"


def test_an_experiment_of_the_past_may_take_the_canary_back() -> None:
    told = raced(290.0, 150.0)
    assert told[-1].phase == "RolledBack"
    assert "the experiment is over" in told[-1].sentence or "without a winner" in told[-1].sentence


def test_a_guest_without_a_past_is_left_out_of_the_race() -> None:
    told = raced(450.0, None)
    (won,) = (text for look in told for text in look.raced if text.startswith("experiment won by canary"))
    assert "other" not in won
    assert told[-1].weight == 100


def test_the_replay_ends_where_a_person_would_have_to_choose() -> None:
    told = raced(300.0, 300.0, pause=True)
    assert told[-1].sentence.endswith("(a person's choice is not on record)")
    assert told[-1].weight == 30


def test_a_winner_that_waits_for_approval_is_approved_and_not_the_canary() -> None:
    told = raced(310.0, 450.0, pause=True)
    approved = next(look for look in told if look.sentence.endswith("(the replay approves)"))
    assert "--arm other" in approved.sentence
    assert told[-1].sentence == f"{OTHER} serves every episode"


def test_what_the_replay_says_of_a_simulated_rollout_is_what_happened_in_it() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BAD)
    began = cluster.now
    cluster.run(90)
    pinned = cluster.status["blockedRevision"]
    new, old = Model(pinned["revision"], pinned["uri"]), Model(cluster.status["stable"]["revision"], "https://m/0")
    spec = ModelDeploymentSpec.model_validate(cluster.spec)
    replay, end = Replay("ns", "md", spec, new, old, began), cluster.now
    while not replay.over and began < end:
        cluster.now = began
        known = {window.revision: cluster.seen(window.revision, window.seconds) for window in replay.asked(began)}
        look = replay.look(began, Evidence(known))
        began += timedelta(seconds=2)
    assert look.phase == "RolledBack"
    happened = datetime.fromisoformat(pinned["at"])
    assert abs((look.at - happened).total_seconds()) <= 6
