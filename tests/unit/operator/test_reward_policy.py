"""RewardPolicy: one immutable revision per content."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_operator.adapters.kube_errors import InvalidSpec
from learnloop_operator.controllers.specs import read_spec
from learnloop_operator.core.digests import revision
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.reward_policy import REPEAT_SECONDS, RewardWorld, decide

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def world(weights: tuple[float, ...] = (0.6, 0.4), status: dict[str, Any] | None = None, **changes: Any) -> RewardWorld:
    components = [{"name": f"c{i}", "type": "environment", "weight": weight} for i, weight in enumerate(weights)]
    spec = changes.pop("spec", {"components": components})
    body = {"metadata": {"name": "rp", "namespace": "ns", "generation": 2}, "status": status or {}}
    chosen = {"now": NOW, "object": body, "spec": RewardPolicySpec.model_validate(spec)} | changes
    return RewardWorld(**chosen)


def ready(plan: Plan) -> dict[str, Any]:
    return next(item for item in plan.status["conditions"] if item["type"] == "Ready")


def test_new_content_is_published_under_its_hash() -> None:
    plan = decide(world(agents=3))
    (call,) = plan.calls
    assert call.method == "PUT"
    assert call.path == f"/api/v1/rewards/policies/rp/revisions/{plan.status['revision']}"
    assert call.body is not None
    assert call.body["components"][0]["weight"] == 0.6
    assert plan.status["agents"] == 3
    assert ready(plan)["status"] == "True"


def test_published_content_is_not_published_again_until_it_is_time() -> None:
    first = decide(world())
    assert decide(world(status=dict(first.status))).calls == ()
    late = decide(world(status=dict(first.status), now=NOW + timedelta(seconds=REPEAT_SECONDS)))
    assert len(late.calls) == 1
    assert late.status == first.status, "repeating changes nothing in the status"


@pytest.mark.parametrize(
    ("component", "sentence"),
    [
        ({"type": "environment", "weight": 0.7}, "add up to 0.7"),
        ({"type": "outcome", "weight": 1}, "key"),
    ],
)
def test_a_policy_that_slipped_past_old_rules_is_reported_with_its_field(
    component: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidSpec, match=r"^spec.*components") as caught:
        read_spec(RewardPolicySpec, {"spec": {"components": [{"name": "o", **component}]}})
    assert sentence in str(caught.value)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=6), st.randoms())
def test_the_order_of_keys_never_changes_a_revision(content: dict[str, Any], shuffle: random.Random) -> None:
    items = list(content.items())
    shuffle.shuffle(items)
    assert revision(dict(items)) == revision(content)
