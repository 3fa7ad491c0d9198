"""RewardPolicy: one immutable revision per content."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, DryRunFigures, RewardSignals
from learnloop_operator import reward_revisions
from learnloop_operator.core.plan import Plan, revision
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.errors import InvalidSpec
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.reconcile.reward_policy import RewardPolicyController
from learnloop_operator.reconcile.work_queue import Services, read_spec
from learnloop_operator.reward_revisions import RewardPolicySnapshot, decide

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def situation(weights: tuple[float, ...] = (0.6, 0.4), status: dict | None = None, **changes) -> RewardPolicySnapshot:
    components = [{"name": f"c{i}", "type": "environment", "weight": weight} for i, weight in enumerate(weights)]
    spec = changes.pop("spec", {"components": components})
    body = {"metadata": {"name": "rp", "namespace": "ns", "generation": 2}, "status": status or {}}
    chosen = {"now": NOW, "object": body, "spec": RewardPolicySpec.model_validate(spec)} | changes
    return RewardPolicySnapshot(**chosen)


def ready(plan: Plan) -> dict:
    return next(item for item in plan.status["conditions"] if item["type"] == "Ready")


def test_new_content_is_published_under_its_hash() -> None:
    plan = decide(situation(agents=3))
    (call,) = plan.calls
    assert call.method == "PUT"
    assert call.path == f"/api/v1/rewards/policies/rp/revisions/{plan.status['revision']}"
    assert call.body["components"][0]["weight"] == 0.6
    assert plan.status["agents"] == 3
    assert ready(plan)["status"] == "True"


def test_published_content_is_not_published_again_until_it_is_time() -> None:
    first = decide(situation())
    assert decide(situation(status=dict(first.status))).calls == ()
    late = decide(situation(status=dict(first.status), now=NOW + timedelta(seconds=reward_revisions.REPEAT_SECONDS)))
    assert len(late.calls) == 1
    assert late.status == first.status, "repeating changes nothing in the status"


def test_what_the_data_plane_can_only_tell_of_a_published_revision_is_asked_for_soon() -> None:
    first = decide(situation())
    assert first.requeue_after == reward_revisions.RETRY_SECONDS, "it knew no such revision before"
    assert decide(situation(status=dict(first.status))).requeue_after is None


def suspicion(plan: Plan) -> dict:
    return next(item for item in plan.status["conditions"] if item["type"] == "RewardHackingSuspected")


def signals(
    suspected: bool | None = True, reason: str = "DuplicateTrajectories", figure: str = "31 %"
) -> RewardSignals:
    body = {"suspected": suspected, "reason": reason, "sentence": f"{figure} repeat another", "rewards": 500}
    return RewardSignals.model_validate(body | {"worst": ["t1", "t2", "t3"] if suspected else []})


CHECKED = {"bias": {"groupBy": ["metadata.language"]}}


def bias_condition(plan: Plan) -> dict:
    return next(item for item in plan.status["conditions"] if item["type"] == "BiasSuspected")


def bias(suspected: bool | None = True, reason: str = "RewardGap", figure: str = "0.12") -> BiasFigures:
    body = {"suspected": suspected, "reason": reason, "sentence": f"en earns {figure} more than de", "episodes": 500}
    return BiasFigures.model_validate(body)


def test_bias_is_told_once_and_its_check_is_no_part_of_the_revision() -> None:
    plain, checked = decide(situation(spec={})), decide(situation(spec=CHECKED))
    assert plain.status["revision"] == checked.status["revision"]
    assert checked.calls == plain.calls, "what is published says nothing of the check"
    assert all(item["type"] != "BiasSuspected" for item in plain.status["conditions"])
    assert bias_condition(checked)["status"] == "Unknown"
    plan = decide(situation(spec=CHECKED, status=dict(checked.status), bias=bias()))
    number = checked.status["revision"]
    assert bias_condition(plan)["message"] == f"revision {number}: en earns 0.12 more than de"
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "BiasSuspected")]
    assert ready(plan)["status"] == "True", "a suspicion does not stop the policy"
    for later in (bias(figure="0.13"), None):
        again = decide(situation(spec=CHECKED, status=dict(plan.status), bias=later))
        assert (again.status, again.events) == (plan.status, ()), "the same finding costs no write"
    cleared = decide(situation(spec=CHECKED, status=dict(plan.status), bias=bias(False, "NothingFound")))
    assert (bias_condition(cleared)["status"], cleared.events) == ("False", ())
    removed = decide(situation(spec={}, status=dict(plan.status)))
    assert all(item["type"] != "BiasSuspected" for item in removed.status["conditions"])


def test_a_dry_run_tells_the_bias_of_what_is_tried() -> None:
    figures = DryRunFigures(trajectories=500, correlation=0.81, sentence="s")
    trial = {**CHECKED, "dryRun": True}
    halfway = decide(situation(spec=trial, dry_run=figures))
    assert ("bias" in halfway.status["dryRun"], halfway.requeue_after is not None) == (False, True)
    plan = decide(situation(spec=trial, status=dict(halfway.status), bias=bias()))
    assert plan.status["dryRun"]["bias"] == "en earns 0.12 more than de"
    assert (bias_condition(plan)["status"], plan.requeue_after) == ("True", None)
    assert [event.reason for event in plan.events] == ["BiasSuspected"]


def test_a_first_policy_in_dry_run_is_not_ready() -> None:
    plan = decide(situation(spec={"dryRun": True}))
    assert (ready(plan)["status"], plan.calls) == ("False", ())
    assert "set dryRun to false" in ready(plan)["message"]


def test_a_suspicion_ends_with_the_finding_and_with_the_revision() -> None:
    plan = decide(situation(agents=1, status=dict(decide(situation()).status), signals=signals()))
    cleared = decide(situation(agents=1, status=dict(plan.status), signals=signals(False, "NothingFound")))
    assert (suspicion(cleared)["status"], cleared.events) == ("False", ())
    changed = decide(situation((0.5, 0.5), agents=1, status=dict(plan.status)))
    assert (suspicion(changed)["status"], suspicion(changed)["reason"]) == ("Unknown", "NotLookedAt")


@pytest.mark.parametrize(
    ("component", "sentence"),
    [({"type": "environment", "weight": 0.7}, "add up to 0.7"), ({"type": "outcome", "weight": 1}, "key")],
)
def test_a_policy_that_slipped_past_old_rules_is_reported_with_its_field(component, sentence):
    with pytest.raises(InvalidSpec, match=r"^spec.*components") as caught:
        read_spec(RewardPolicySpec, {"spec": {"components": [{"name": "o", **component}]}})
    assert sentence in str(caught.value)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=6), st.randoms())
def test_the_order_of_keys_never_changes_a_revision(content: dict, shuffle: random.Random) -> None:
    items = list(content.items())
    shuffle.shuffle(items)
    assert revision(dict(items)) == revision(content)


def controller(kube: KubeClient, url: str) -> RewardPolicyController:
    unused = None
    return RewardPolicyController(Services(kube, DataPlane(url, "/nonexistent"), unused, unused, unused))


def policy(spec: dict, status: dict | None = None) -> dict:
    return {"metadata": {"name": "rp", "namespace": "ns", "generation": 1}, "spec": spec, "status": status or {}}


async def test_a_dry_run_is_asked_for_once_and_a_busy_data_plane_is_asked_again(wire, kube) -> None:
    spec = {"dryRun": True}
    for answer in (
        (429, {"error": {"message": "another one"}}),
        (200, {"trajectories": 7, "sentence": "s", "more": 1}),
    ):
        wire.answer(200, policy(spec))
        wire.answer(200, {"metadata": {}, "items": []})
        wire.answer(*answer)
    busy = await controller(kube, wire.url).gather("ns", "rp")
    assert busy.dry_run is None
    assert decide(busy).requeue_after
    tried = await controller(kube, wire.url).gather("ns", "rp")
    assert tried.dry_run == DryRunFigures(trajectories=7, sentence="s")
    method, path, body = wire.requests[-1]
    assert (method, path) == ("POST", "/api/v1/rewards/dry-run")
    assert "dryRun" not in json.loads(body)["policy"]
    count = len(wire.requests)
    wire.script.clear()
    wire.answer(200, policy(spec, dict(decide(tried).status)))
    wire.answer(200, {"metadata": {}, "items": []})
    await controller(kube, wire.url).gather("ns", "rp")
    assert [path for _, path, _ in wire.requests[count:] if "rewards" in path] == []


LIMITED = {
    "components": [{"name": "c", "type": "environment", "weight": 1}],
    "constraints": [{"name": "short", "key": "length", "maximum": 400, "rewardAtMost": 0.1}],
}


def recorded(plan: Plan) -> dict | None:
    return next((item for item in plan.status["conditions"] if item["type"] == "OutcomeValuesRecorded"), None)


def test_a_constraint_on_a_value_that_nothing_records_is_told_once_with_what_is_recorded() -> None:
    before = decide(situation(agents=1, spec=LIMITED))
    assert recorded(before) is not None
    unrecorded = {"unrecorded": ["length (constraint short)"], "recorded": ["travelled", "turns"]}
    never = signals(False, "NothingFound").model_copy(update=unrecorded)
    plan = decide(situation(agents=1, spec=LIMITED, status=dict(before.status), signals=never))
    condition = recorded(plan)
    assert (condition["status"], condition["reason"]) == ("False", "NeverRecorded")
    assert condition["message"] == (
        "none of the newest 500 episodes has length (constraint short); recorded: travelled, turns; "
        "correct the key, or record it by Episode.outcome()"
    )
    assert [event.reason for event in plan.events] == ["NeverRecorded"]
    assert ready(plan)["status"] == "True"
    for later in (never.model_copy(update={"rewards": 900}), None):
        again = decide(situation(agents=1, spec=LIMITED, status=dict(plan.status), signals=later))
        assert (again.status, again.events) == (plan.status, ()), "the same finding costs no write"
    mended = decide(situation(agents=1, spec=LIMITED, status=dict(plan.status), signals=signals(False, "NothingFound")))
    assert (recorded(mended) or {})["status"] == "True"


def test_a_policy_that_names_no_outcome_value_has_no_such_condition() -> None:
    assert recorded(decide(situation(agents=1))) is None
