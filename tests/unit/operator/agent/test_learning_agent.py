"""The loop of one agent, decided without a cluster."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LearningAgentSpec, LearningAgentStatus
from learnloop_api.kinds.model_deployment import ModelDeploymentStatus
from learnloop_api.wire.reward import AgentStats
from learnloop_operator.agents.agent_snapshot import AgentDefaults, AgentSnapshot, MemoryHome, Policy, TrainingRun
from learnloop_operator.agents.decide_agent import BUSY, RESTING, SELDOM, decide
from learnloop_operator.agents.model_to_serve import forgettable, model_to_serve
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.times import stamp

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SHA = "ab" * 32
SERVING = ModelDeploymentStatus.model_validate(
    {"stable": {"revision": "11111111", "uri": "uniform://discrete/2?observations=4"}, "phase": "Healthy"}
)


def spec(**more) -> dict:
    return {
        "rewardPolicyRef": {"name": "solving"},
        "task": {
            "observations": 4,
            "actions": 2,
            "environment": {"name": "CartPole-v1", "successReturn": 195, "actors": {"maxStepsPerSecond": 900}},
        },
        "training": {
            "triggers": {"episodes": 100, "minIntervalSeconds": 60},
            "template": {"algorithm": "ppo", "totalSteps": 1000},
            "history": 2,
        },
        **more,
    }


def situation(rewarded: int | None = 0, request: str | None = None, **changes) -> AgentSnapshot:
    raw = changes.pop("spec", spec())
    notes = changes.pop("annotations", {})
    metadata = {"name": "la", "namespace": "ns", "uid": "u", "generation": 1, "annotations": notes}
    metadata["creationTimestamp"] = stamp(NOW - timedelta(days=1))
    stats = None
    if rewarded is not None:
        stats = AgentStats(
            agent="la", trajectories=rewarded, rewarded=rewarded, recent_episodes=0, training_request=request
        )
    before = LearningAgentStatus.model_validate(changes.pop("before", {"registered": "solving/r1"}))
    defaults = {"policy": Policy(True, "r1"), "stats": stats, "deployment": SERVING, "now": NOW}
    return AgentSnapshot(
        object={"apiVersion": names.API_VERSION, "kind": "LearningAgent", "metadata": metadata},
        spec=LearningAgentSpec.model_validate(raw),
        before=before,
        defaults=AgentDefaults("serving", "http://data"),
        **{**defaults, **changes},
    )


def job(number: int, phase: str = "Validated", ended: datetime = NOW - timedelta(hours=1), **more) -> TrainingRun:
    finished = phase in ("Validated", "Failed")
    return TrainingRun(
        name=f"la-{number}",
        number=number,
        phase=phase,
        finished=finished,
        created_at=stamp(ended - timedelta(minutes=5)),
        finished_at=stamp(ended) if finished else None,
        uri=f"https://m/{number}" if phase == "Validated" else None,
        sha256=SHA if phase == "Validated" else None,
        **more,
    )


def created(plan: Plan) -> list[str]:
    return [item["metadata"]["name"] for item in plan.apply if item["kind"] == "TrainingJob"]


def after(plan: Plan, **more) -> dict:
    return {**plan.status, **more}


def test_enough_rewarded_episodes_start_a_run_with_the_agents_environment() -> None:
    plan = decide(situation(120))
    assert created(plan) == ["la-1"]
    data = plan.apply[0]["spec"]["data"]
    assert (data["environment"], data["learningAgentRef"]) == ("CartPole-v1", {"name": "la"})
    assert plan.status["lastTraining"] == {"name": "la-1", "trigger": "episodes", "at": stamp(NOW), "rewarded": 120}
    assert plan.events[0].message == "la-1: 120 rewarded episodes, 100 wanted"


def test_too_few_episodes_start_nothing_and_say_how_many_are_missing() -> None:
    plan = decide(situation(99))
    assert created(plan) == []
    assert plan.status["conditions"][0]["message"] == "uniform serves; 99 of 100 rewarded episodes for the next run"


def why(plan: Plan) -> str:
    return str(plan.status["conditions"][0]["message"])


def test_a_model_that_another_one_still_serves_for_is_to_be_served() -> None:
    assert why(decide(situation(0, jobs=(job(1),)))).startswith("la-1 is the model; ")
    proven = ModelDeploymentStatus.model_validate({"stable": {"revision": "2" * 8, "uri": "https://m/1"}})
    assert why(decide(situation(0, jobs=(job(1),), deployment=proven))).startswith("la-1 serves; ")
    artifact = {"revision": "2" * 8, "uri": "https://m/1", "sha256": job(1).sha256}
    undone = {**artifact, "at": stamp(NOW), "reason": "Undone", "message": "by admin"}
    gone = ModelDeploymentStatus.model_validate({"blockedRevisions": [undone]})
    assert why(decide(situation(0, jobs=(job(1),), deployment=gone))).startswith("la-1 was rolled back; ")


def test_without_the_data_plane_an_agent_does_not_wait_to_be_asked() -> None:
    message = why(decide(situation(None, stats_problem="the data plane does not answer")))
    assert message == (
        "uniform serves; episodes are not counted, of which 100 start the next run: the data plane does not answer"
    )


def test_an_agent_without_a_trigger_names_the_command_that_trains_it() -> None:
    plain = spec(training={"triggers": {}, "template": {"algorithm": "ppo", "totalSteps": 1000}})
    assert why(decide(situation(5, spec=plain))) == "uniform serves; `kubectl learnloop train la` starts the next run"


def test_a_newest_run_that_brought_no_model_is_told() -> None:
    before = {
        "registered": "solving/r1",
        "trainings": 2,
        "lastTraining": {"name": "la-2", "trigger": "episodes", "at": stamp(NOW), "rewarded": 100},
    }
    runs = (job(1), job(2, "Failed", verdict="GatesFailed"))
    sentence = why(decide(situation(150, before=before, jobs=runs)))
    assert (
        sentence
        == "la-1 is the model; la-2 brought no model (GatesFailed); 50 of 100 rewarded episodes for the next run"
    )


def test_runs_never_overlap_whoever_asks() -> None:
    notes = {names.ANNOTATION_TRAIN: "now"}
    assert created(decide(situation(900, "request-1", jobs=(job(1, "Training"),), annotations=notes))) == []


def test_a_model_that_was_rolled_back_is_not_trained_again_without_new_episodes() -> None:
    first = decide(situation(120))
    again = situation(120, before=first.status, jobs=(job(1),), now=NOW + timedelta(days=9))
    assert created(decide(again)) == []
    assert created(decide(situation(220, before=first.status, jobs=(job(1),), now=NOW + timedelta(days=9)))) == ["la-2"]


def test_a_suspended_agent_is_looked_at_once_a_minute_unless_the_data_plane_does_not_answer() -> None:
    assert decide(situation(500, spec=spec(suspend=True))).requeue_after == RESTING
    assert decide(situation(500, spec=spec(suspend=True), stats_problem="refused")).requeue_after == BUSY
    assert decide(situation(500)).requeue_after == BUSY


def test_a_run_rests_after_the_last_one_unless_a_person_asks() -> None:
    ended = job(1, "Failed", NOW - timedelta(seconds=10))
    before = {"trainings": 1, "lastTraining": {"name": "la-1", "trigger": "episodes", "at": stamp(NOW), "rewarded": 0}}
    plan = decide(situation(500, before=before, jobs=(ended,)))
    assert created(plan) == []
    assert plan.requeue_after <= 50
    snapshot = situation(500, before=before, jobs=(ended,), annotations={names.ANNOTATION_TRAIN: "7"})
    plan = decide(snapshot)
    assert created(plan) == ["la-2"]
    assert plan.status["observedTrain"] == "7"


def test_an_emptied_annotation_asks_for_nothing_however_often_it_is_seen() -> None:
    notes = {names.ANNOTATION_TRAIN: ""}
    assert created(decide(situation(0, annotations=notes))) == []
    before = {"trainings": 1, "observedTrain": "7"}
    assert created(decide(situation(0, annotations=notes, before=before, jobs=(job(1, "Failed"),)))) == []


def test_an_annotation_and_a_request_are_obeyed_once() -> None:
    notes = {names.ANNOTATION_TRAIN: "7"}
    first = decide(situation(0, "request-1", annotations=notes))
    assert created(first) == ["la-1"]
    done = (job(1, "Failed"),)
    assert created(decide(situation(0, "request-1", annotations=notes, before=first.status, jobs=done))) == []
    assert created(decide(situation(0, "request-2", annotations=notes, before=first.status, jobs=done))) == ["la-2"]


def test_dying_between_the_job_and_the_status_starts_no_second_job() -> None:
    first = decide(situation(120))
    notes = first.apply[0]["metadata"]["annotations"]
    assert notes[names.ANNOTATION_TRAJECTORIES] == "120"
    snapshot = situation(150, jobs=(job(1, "Starting", notes=notes),))
    plan = decide(snapshot)
    assert created(plan) == []
    assert (plan.status["trainings"], plan.status["lastTraining"]["rewarded"]) == (1, 120)


def by_clock(**more) -> dict:
    training = {**spec()["training"], "triggers": {"schedule": "0 3 * * *", "minIntervalSeconds": 0}}
    return spec(training=training, **more)


def test_many_missed_times_of_a_schedule_fire_once() -> None:
    late = decide(situation(0, spec=by_clock(), now=NOW + timedelta(days=30)))
    assert created(late) == ["la-1"]
    next_look = situation(
        0, spec=by_clock(), before=late.status, jobs=(job(1, "Failed"),), now=NOW + timedelta(days=30)
    )
    assert created(decide(next_look)) == []
    assert created(decide(replace(next_look, now=NOW + timedelta(days=31)))) == ["la-2"]


@given(quiet=st.integers(min_value=-60, max_value=10**7))
def test_the_longer_an_agent_is_quiet_the_more_seldom_it_is_looked_at(quiet: int) -> None:
    stats = AgentStats(
        agent="la", trajectories=9, rewarded=9, recent_episodes=0, last_trajectory_at=NOW - timedelta(seconds=quiet)
    )
    before = {"registered": "solving/r1", "rewarded": 9}
    plan = decide(replace(situation(before=before), stats=stats))
    assert plan.requeue_after == pytest.approx(min(SELDOM, max(BUSY, quiet / 10)))
    assert decide(replace(situation(before=before | {"rewarded": 8}), stats=stats)).requeue_after == BUSY


def test_an_agent_that_never_played_is_quiet_since_it_was_made() -> None:
    quiet = situation(before={"registered": "solving/r1", "rewarded": 0})
    assert decide(quiet).requeue_after == SELDOM
    quiet.object["metadata"]["creationTimestamp"] = stamp(NOW - timedelta(seconds=50))
    assert decide(quiet).requeue_after == 5


def test_an_agent_is_registered_once_and_again_when_the_data_plane_forgot_it() -> None:
    first = decide(situation(None, before={}))
    assert [call.path for call in first.calls] == ["/api/v1/agents/la"]
    assert decide(situation(5, before=first.status)).calls == ()
    assert len(decide(situation(None, before=first.status)).calls) == 1
    assert len(decide(situation(5, before=first.status, policy=Policy(True, "r2"))).calls) == 1


def test_a_group_is_declared_with_the_registration_and_a_memory_service_is_told_it_by_its_file() -> None:
    first = decide(situation(None, before={}))
    grouped = spec(memory={"group": "support"})
    joined = decide(situation(5, before=first.status, spec=grouped))
    assert [call.body["memory_group"] for call in joined.calls if call.body] == ["support"]
    assert decide(situation(5, before=joined.status, spec=grouped)).calls == ()
    [left] = decide(situation(5, before=joined.status)).calls
    assert "memory_group" not in left.body
    elsewhere = spec(memory={"group": "support", "serviceRef": {"name": "mem"}})
    assert decide(situation(5, before=first.status, spec=elsewhere, memory=MemoryHome(True, "http://mem"))).calls == ()


def test_while_the_data_plane_is_away_nothing_is_told_and_nothing_is_forgotten() -> None:
    first = decide(situation(120))
    plan = decide(situation(None, before=first.status, stats_problem="no answer", jobs=(job(1),)))
    assert (plan.calls, created(plan), plan.status["rewarded"]) == ((), [], 120)
    data = next(item for item in plan.status["conditions"] if item["type"] == "DataAvailable")
    assert (data["status"], data["message"]) == ("False", "no answer")


def test_references_to_nowhere_name_the_field_and_the_fix() -> None:
    lost = decide(situation(900, policy=Policy()))
    assert created(lost) == []
    assert "spec.rewardPolicyRef.name: no RewardPolicy 'solving'" in lost.status["conditions"][0]["message"]
    homeless = spec(memory={"serviceRef": {"name": "mem"}})
    plan = decide(situation(900, spec=homeless, memory=MemoryHome()))
    assert "spec.memory.serviceRef.name: no MemoryService 'mem'" in plan.status["conditions"][0]["message"]
    assert plan.status["phase"] == "Degraded"


def test_a_pinned_model_wins_and_the_newest_proof_returns_when_the_pin_goes() -> None:
    pin = spec(deployment={"model": {"uri": "https://m/pinned", "sha256": SHA}})
    jobs = (job(1), job(2), job(3, "Failed"))
    pinned = decide(situation(0, spec=pin, jobs=jobs))
    assert pinned.status["model"]["source"] == "pinned"
    assert decide(situation(0, jobs=jobs, before=pinned.status)).status["model"]["source"] == "la-2"


def test_a_model_outlives_its_job() -> None:
    served = decide(situation(0, jobs=(job(3),))).status
    assert model_to_serve(situation(0, before=served)).source == "la-3"


def test_suspend_stops_training_actors_and_new_models_and_keeps_what_is_served() -> None:
    served = decide(situation(0, jobs=(job(1),))).status
    plan = decide(situation(900, spec=spec(suspend=True), before=served, jobs=(job(1), job(2))))
    assert (created(plan), plan.status["model"]["source"], plan.status["phase"]) == ([], "la-1", "Suspended")
    actor = next(item for item in plan.apply if item["metadata"]["name"] == "la-actor")
    assert actor["spec"]["replicas"] == 0


def test_actors_wait_until_there_is_a_policy_to_ask() -> None:
    plan = decide(situation(0, deployment=None))
    assert plan.apply[-1]["spec"]["replicas"] == 0
    ready = decide(situation(0)).apply[-1]
    assert ready["spec"]["replicas"] == 1
    env = {item["name"]: item.get("value") for item in ready["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["LEARNLOOP_ENDPOINT"] == "http://la.ns.svc:8080"
    assert env["LEARNLOOP_ACTOR_SUCCESS_RETURN"] == "195"
    assert env["LEARNLOOP_ACTOR_MAX_STEPS_PER_SECOND"] == "900"


@given(st.lists(st.sampled_from(["Validated", "Failed", "Training"]), max_size=9), st.integers(0, 9))
def test_history_never_forgets_what_serves_or_proves(phases: list[str], serving: int) -> None:
    jobs = tuple(job(number + 1, phase) for number, phase in enumerate(phases))
    stable = {"revision": "11111111", "uri": f"https://m/{serving}"}
    snapshot = situation(0, jobs=jobs, deployment=ModelDeploymentStatus.model_validate({"stable": stable}))
    gone = set(forgettable(snapshot))
    assert f"la-{serving}" not in gone or not any(item.name == f"la-{serving}" and item.uri for item in jobs)
    assert model_to_serve(snapshot).source not in gone
    assert not gone & {item.name for item in jobs if not item.finished}
    assert len([item for item in jobs if item.finished]) - len(gone) >= min(2, len([j for j in jobs if j.finished]))
