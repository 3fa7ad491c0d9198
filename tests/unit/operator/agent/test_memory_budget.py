"""The memory budget of an agent: told once, taken back, and shown without a write for every memory."""

from datetime import timedelta
from typing import Any

from learnloop_api.wire.memory import MemoryBudget, MemoryUse
from learnloop_operator.agents.decide import decide
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.times import stamp

from .test_learning_agent import NOW, spec, world

BUDGET = {"memories": 1000, "size": "1Mi", "perType": {"episodic": 400}}
WIRE = MemoryBudget(memories=1000, bytes=2**20, per_type={"episodic": 400})
PATH = "/api/v1/agents/la/memory-budget"
BARE = {"registered": "solving/r1"}


def use(memories: int | None = 500, **changes: Any) -> MemoryUse:
    known = {"bytes": 1000, "pinned": 0} if memories is not None else {}
    return MemoryUse.model_validate(
        {"agent": "la", "own": WIRE, "budget": WIRE, "memories": memories, **known, **changes}
    )


def decided(before: Any = BARE, budget: Any = BUDGET, **changes: Any) -> Plan:
    memory = {"memory": {"budget": budget}} if budget else {}
    return decide(world(0, spec=spec(**memory), before=before, **changes))


def condition(plan: Plan) -> dict[str, Any]:
    return next((item for item in plan.status["conditions"] if item["type"] == "MemoryBudget"), {})


def test_a_budget_is_put_until_the_data_plane_has_it() -> None:
    put = Call("PUT", PATH, {"memories": 1000, "bytes": 2**20, "per_type": {"episodic": 400}})
    assert decided().calls == (put,)
    assert decided(memory_use=use(own=MemoryBudget(memories=1))).calls == (put,)
    assert decided(memory_use=use()).calls == ()
    away = decided(memory_problem="the data plane does not answer")
    assert away.calls == ()
    assert (condition(away)["status"], condition(away)["reason"]) == ("Unknown", "DataPlaneUnavailable")


def test_a_budget_that_left_the_spec_is_taken_back_even_when_the_data_plane_was_away() -> None:
    first = decided(memory_use=use())
    away = decided(first.status, budget=None, memory_problem="away")
    assert away.calls == ()
    assert condition(away), "still to be rolled back"
    back = decided(away.status, budget=None, memory_use=use())
    assert back.calls == (Call("DELETE", PATH),)
    assert not condition(back)
    assert "memory" not in back.status
    assert decided(back.status, budget=None).calls == ()


def test_the_status_tells_of_the_use_only_what_is_news() -> None:
    first = decided(memory_use=use(500))
    assert first.status["memory"] == {
        "memories": 500, "bytes": 1000, "used": "50%", "forgotten": 0, "observedAt": stamp(NOW)
    }  # fmt: skip
    soon, late = NOW + timedelta(seconds=60), NOW + timedelta(seconds=660)
    assert decided(first.status, memory_use=use(521), now=soon).status == first.status
    assert decided(first.status, memory_use=use(500), now=late).status == first.status, "a quiet agent costs no write"
    assert decided(first.status, memory_use=use(530), now=soon).status["memory"]["used"] == "55%"
    assert decided(first.status, memory_use=use(521), now=late).status["memory"]["memories"] == 521
    gone = use(500, forgotten=30, last_forgotten=30, last_forgotten_at=NOW)
    assert decided(first.status, memory_use=gone, now=late).status["memory"]["lastForgotten"] == 30


def test_pinned_memories_above_the_budget_are_a_condition_that_names_field_and_fix_once() -> None:
    above = use(1200, pinned=1200, pinned_above=["memories", "per_type.episodic"])
    plan = decided(memory_use=above)
    found = condition(plan)
    assert (found["status"], found["reason"]) == ("False", "PinnedAboveBudget")
    assert found["message"].startswith(
        "1200 pinned memories alone exceed spec.memory.budget.memories, spec.memory.budget.perType.episodic"
    )
    assert [event.reason for event in plan.events].count("PinnedAboveBudget") == 1
    assert not [event for event in decided(plan.status, memory_use=above).events if event.type == "Warning"]
    fine = condition(decided(plan.status, memory_use=use()))
    assert (fine["status"], fine["message"]) == (
        "True",
        "at most 1000 memories, 1048576 bytes, 400 episodic ones; above, what is worth least is forgotten",
    )


def test_what_is_not_measured_yet_is_unknown() -> None:
    assert condition(decided(memory_use=use(None)))["reason"] == "NotMeasured"
    assert condition(decided())["reason"] == "NotMeasured"
