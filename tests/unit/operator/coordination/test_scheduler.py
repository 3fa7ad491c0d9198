"""Whose training runs next: quotas hold, shares are fair, nobody starves, and a run is disturbed only for a better."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.core.coordination.quotas import Quota, Quotas, read
from learnloop_operator.core.coordination.scheduler import RESERVED, SETTLED, Schedule, WantedRun, schedule
from learnloop_operator.core.coordination.waiting_times import waiting_times

NAMESPACES = ("a", "b", "c")


def waits(name: str, namespace: str = "a", **more: object) -> WantedRun:
    return WantedRun(key=(namespace, name), agent=name, **more)  # type: ignore[arg-type]


def runs(name: str, namespace: str = "a", **more: object) -> WantedRun:
    return waits(name, namespace, running=True, **{"ran": 1000.0, **more})


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[WantedRun], Quotas, dict[str, int]]:
    small = st.one_of(st.none(), st.integers(0, 4))
    quota = st.builds(Quota, runs=small, gpus=small, runs_per_day=small)
    run = st.builds(
        WantedRun,
        key=st.tuples(st.sampled_from(NAMESPACES), st.integers(0, 99).map(str)),
        agent=st.sampled_from(("x", "y")),
        priority=st.integers(0, 100),
        gpus=st.integers(0, 3),
        waited=st.floats(0, 5000),
        running=st.booleans(),
        ran=st.floats(0, 1000),
    )
    found = draw(st.lists(run, max_size=14, unique_by=lambda item: item.key))
    begun = Counter({namespace: draw(st.integers(0, 3)) for namespace in NAMESPACES})
    return found, Quotas(draw(quota), draw(quota)), {**begun, "": sum(begun.values())}


def over(found: list[WantedRun], quotas: Quotas, begun: dict[str, int], made: Schedule) -> list[str]:
    """Quotas that those admitted break, beside what ran already."""
    broken = []
    for scope in (*NAMESPACES, ""):
        quota = quotas.of(scope) if scope else quotas.cluster
        mine = [run for run in found if scope in ("", run.namespace)]
        fresh = [run for run in mine if run.key in made.admitted]
        held = [run for run in mine if run.running and run.key not in made.preempted]
        if not fresh:
            continue
        if quota.runs is not None and len(held) + len(fresh) > quota.runs:
            broken.append(f"{scope} runs")
        gpus = sum(run.gpus for run in held + fresh)
        if quota.gpus is not None and gpus > quota.gpus and any(run.gpus for run in fresh):
            broken.append(f"{scope} gpus")
        if quota.runs_per_day is not None and begun[scope] + len(fresh) > quota.runs_per_day:
            broken.append(f"{scope} day")
    return broken


@given(worlds())
def test_no_schedule_breaks_a_quota_and_every_run_is_admitted_or_told_why(
    world: tuple[list[WantedRun], Quotas, dict[str, int]],
) -> None:
    found, quotas, begun = world
    made = schedule(found, quotas, begun)
    assert over(found, quotas, begun, made) == []
    waiting = {run.key for run in found if not run.running}
    assert made.admitted | set(made.order) == waiting
    assert not made.admitted & set(made.order)
    assert set(made.why) == set(made.order)


@given(worlds(), st.integers(0, 9))
def test_the_order_in_which_runs_are_listed_changes_nothing(
    world: tuple[list[WantedRun], Quotas, dict[str, int]], seed: int
) -> None:
    found, quotas, begun = world
    mixed = Random(seed).sample(found, len(found))
    assert schedule(found, quotas, begun) == schedule(mixed, quotas, begun)


@given(worlds())
def test_only_a_settled_run_of_lower_priority_makes_way_and_only_where_that_is_enough(
    world: tuple[list[WantedRun], Quotas, dict[str, int]],
) -> None:
    found, quotas, begun = world
    made = schedule(found, quotas, begun)
    by_key = {run.key: run for run in found}
    for victim, winner in made.preempted.items():
        assert by_key[victim].standing < by_key[winner].priority
        assert by_key[victim].ran >= SETTLED
    gone = [run for run in found if run.key not in made.preempted]
    after = schedule([replace(run, waited=run.waited) for run in gone], quotas, begun)
    assert not made.preempted or after.admitted, "what they give up lets somebody in"


@given(worlds())
def test_without_quotas_everybody_begins(world: tuple[list[WantedRun], Quotas, dict[str, int]]) -> None:
    found, _, begun = world
    made = schedule(found, Quotas(), begun)
    assert made.admitted == {run.key for run in found if not run.running}
    assert not made.preempted


def test_the_higher_priority_goes_first_and_waiting_raises_it() -> None:
    quotas = Quotas(Quota(runs=1))
    made = schedule([waits("low", priority=10), waits("high", priority=60)], quotas, {})
    assert made.admitted == {("a", "high")}
    made = schedule([waits("low", priority=10, waited=1001.0), waits("high", priority=60)], quotas, {})
    assert made.admitted == {("a", "low")}


def test_of_equal_priority_the_namespace_with_the_smaller_share_goes_first() -> None:
    world = [runs("1"), runs("2"), runs("3", "b"), waits("4", waited=9.0), waits("5", "b"), waits("6", "c")]
    made = schedule(world, Quotas(Quota(runs=5)), {})
    assert made.admitted == {("c", "6"), ("b", "5")}


def test_a_full_namespace_holds_up_nobody_else() -> None:
    quotas = Quotas(namespace=Quota(runs=1))
    made = schedule([runs("1"), waits("2", priority=90), waits("3", "b")], quotas, {})
    assert made.admitted == {("b", "3")}
    assert made.why["a", "2"] == "namespace a runs 1 of 1 trainings"


def test_small_runs_pass_a_large_one_until_it_has_waited_long() -> None:
    quotas = Quotas(Quota(gpus=4))
    world = [runs("1", gpus=2), waits("large", gpus=4, waited=RESERVED - 1), waits("small", gpus=1)]
    assert schedule(world, quotas, {}).admitted == {("a", "small")}
    world[1] = replace(world[1], waited=RESERVED)
    assert schedule(world, quotas, {}).admitted == frozenset()
    world[1] = replace(world[1], gpus=5)
    assert schedule(world, quotas, {}).admitted == {("a", "small")}, "nothing is kept for what can never run"


def test_a_run_makes_way_for_a_higher_priority_and_the_youngest_of_the_least_goes() -> None:
    world = [
        runs("old", priority=10, ran=900.0),
        runs("young", priority=10, ran=300.0),
        runs("best", priority=70),
        waits("urgent", priority=90),
    ]
    made = schedule(world, Quotas(Quota(runs=3)), {})
    assert made.preempted == {("a", "young"): ("a", "urgent")}
    assert made.admitted == frozenset(), "it begins when the other has gone"
    fresh = [replace(run, ran=1.0) for run in world]
    assert schedule(fresh, Quotas(Quota(runs=3)), {}).preempted == {}


def test_who_was_of_no_help_with_one_quota_is_asked_again_for_the_next() -> None:
    world = [
        runs("other", "b", priority=1, gpus=4),
        runs("own", "a", priority=2),
        waits("urgent", "a", priority=90, gpus=4),
    ]
    made = schedule(world, Quotas(Quota(gpus=4), Quota(runs=1)), {})
    assert set(made.preempted) == {("b", "other"), ("a", "own")}


def test_a_quota_that_was_lowered_ends_no_run_and_lets_none_in_before_enough_have_ended() -> None:
    world = [*(runs(str(number)) for number in range(5)), waits("next", priority=50)]
    made = schedule(world, Quotas(Quota(runs=2)), {})
    assert (made.admitted, made.preempted) == (frozenset(), {})
    assert made.why["a", "next"] == "the cluster runs 5 of 2 trainings"
    assert schedule(world[4:], Quotas(Quota(runs=2)), {}).admitted == {("a", "next")}


def test_who_was_let_in_for_having_waited_is_not_disturbed_by_those_it_passed() -> None:
    world = [runs("patient", priority=10, waited=2000.0), waits("urgent", priority=90)]
    assert schedule(world, Quotas(Quota(runs=1)), {}).preempted == {}
    world[0] = replace(world[0], waited=60.0)
    assert schedule(world, Quotas(Quota(runs=1)), {}).preempted == {("a", "patient"): ("a", "urgent")}


def test_waiting_earns_a_place_and_never_another_ones() -> None:
    world = [runs("running", priority=50), waits("old", priority=50, waited=9999.0)]
    assert schedule(world, Quotas(Quota(runs=1)), {}).preempted == {}


def test_the_runs_of_a_day_are_counted_and_nobody_makes_way_for_tomorrow() -> None:
    quotas = Quotas(namespace=Quota(runs_per_day=3))
    made = schedule([runs("1", priority=1), waits("2", priority=99)], quotas, {"a": 3, "": 3})
    assert made.preempted == {}
    assert made.why["a", "2"] == "namespace a has begun 3 of 3 runs of today (UTC)"


def test_each_end_lets_the_next_one_in() -> None:
    order = [("a", "1"), ("a", "2"), ("a", "3")]
    assert waiting_times(order, [(30.0, "a"), (10.0, "a")], {("a", "1"): 5.0, ("a", "2"): 60.0}) == {
        ("a", "1"): 10.0,
        ("a", "2"): 15.0,
        ("a", "3"): 30.0,
    }
    assert waiting_times(order, [], {}) == {}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "set an object"),
        ({"clusters": {}}, "clusters: no such field; set cluster"),
        ({"cluster": {"cpus": 3}}, "cluster.cpus: no such field; set runs"),
        ({"namespaces": {"a": {"runs": -1}}}, "namespaces.a.runs: -1: set a whole number"),
        ({"cluster": {"runs": True}}, "cluster.runs: True"),
    ],
)
def test_quotas_that_cannot_be_are_refused_by_name(found: object, said: str) -> None:
    with pytest.raises(ValueError, match=said.split(";")[0].replace("[", "")):
        read(found)


def test_a_namespace_may_have_a_quota_of_its_own() -> None:
    quotas = read({"cluster": {"runs": 9}, "namespace": {"gpus": 2}, "namespaces": {"team-a": {"runsPerDay": 5}}})
    assert quotas.of("team-a") == Quota(runs_per_day=5)
    assert (quotas.of("team-b"), quotas.cluster) == (Quota(gpus=2), Quota(runs=9))
    assert quotas.limits
    assert not Quotas().limits
