"""Cost of a run: what its pods reserved, over attempts, restarts of the operator and trials."""

from dataclasses import replace
from datetime import timedelta

import pytest

from learnloop_operator.cli.explaining_verbs import cost_sentence
from learnloop_operator.core.counted_transitions import happenings
from learnloop_operator.core.times import stamp
from learnloop_operator.training.decide_study import decide
from learnloop_operator.training.run_cost import Prices, Reserved, reserved
from testing.training.study_simulation import Cluster, run as run_study, spec as study_spec
from testing.training.training_builders import NOW, after, job, plan, proof, rank, run, situation

PRICES = Prices(0.5, 4.0, "EUR")
MINUTE = timedelta(minutes=1)


def pod(since=NOW, until=None, gpus: float = 0.0) -> Reserved:
    return Reserved(2.0, gpus, since, until)


def working(*pods: Reserved, **changes):
    return situation(
        {"attempts": 1, "phase": "Starting"}, job=job(), ranks=[rank(reserved=one) for one in pods], **changes
    )


def test_a_pod_costs_what_it_requests_from_its_node_on_until_its_last_container_ends() -> None:
    requests = {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "4", "nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "1"},
    }
    ends = [{"state": {"terminated": {"finishedAt": stamp(NOW + seconds)}}} for seconds in (MINUTE, 3 * MINUTE)]
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}}
    once = {"resources": {"requests": {"cpu": 8}}}
    spec = {"containers": [{"resources": requests}], "initContainers": [sidecar, once]}
    status = {"startTime": stamp(NOW), "phase": "Running", "containerStatuses": ends}
    assert reserved({"spec": spec, "status": {}}) is None, "no node has taken it"
    assert reserved({"spec": spec, "status": status}) == Reserved(1.5, 2.0, NOW, None)
    assert reserved({"spec": spec, "status": status | {"phase": "Failed"}}) == Reserved(1.5, 2.0, NOW, NOW + 3 * MINUTE)


def test_time_is_counted_once_whatever_the_number_of_passes_and_of_operators() -> None:
    """An operator that dies before it has written a count leaves the one before, which its successor goes on from."""
    world = working(pod(NOW - 10 * MINUTE))
    for seconds in range(0, 3600, 7):
        made = plan(replace(world, now=NOW + timedelta(seconds=seconds)))
        if seconds % 3:  # else the operator dies
            world = after(world, made)
    last = plan(replace(world, now=NOW + 80 * MINUTE)).status["cost"]
    assert last["cpuHours"] == pytest.approx(2.0 * 90 / 60, abs=1e-4)
    assert last["gpuHours"] == 0.0


def test_a_rank_that_only_waits_is_counted_once_a_minute() -> None:
    world = working(pod(NOW - 10 * MINUTE))
    first = plan(world)
    world = after(world, first)
    soon, later = (plan(replace(world, now=NOW + timedelta(seconds=seconds))) for seconds in (30, 60))
    assert soon.status["cost"] == first.status["cost"]
    assert later.status["cost"]["countedAt"] == stamp(NOW + MINUTE)


def test_lost_attempts_count_and_pods_of_an_earlier_job_do_not() -> None:
    lost = pod(NOW - 60 * MINUTE, NOW - 30 * MINUTE)
    failed = situation(
        {"attempts": 1}, job=job(state="failed"), ranks=[rank(exit_code=137, running=False, reserved=lost)]
    )
    ended = after(failed, plan(failed))
    assert ended.status["cost"]["cpuHours"] == 1.0
    deleted = after(ended, plan(ended), now=NOW + MINUTE, job=None, ranks=())
    began = after(
        deleted, plan(deleted), job=job(attempt=1), ranks=[rank(reserved=pod(NOW + MINUTE))], now=NOW + 31 * MINUTE
    )
    assert plan(began).status["cost"]["cpuHours"] == 2.0
    again = replace(
        failed, object={**failed.object, "metadata": failed.object["metadata"] | {"creationTimestamp": stamp(NOW)}}
    )
    assert "cost" not in plan(again).status


def test_prices_make_money_of_hours_and_the_proof_a_gain_of_each() -> None:
    ranks = [rank(running=False, exit_code=0, reserved=pod(NOW - 30 * MINUTE, NOW, gpus=1.0))]
    done = situation({"attempts": 1}, job=job(state="succeeded"), ranks=ranks, run=run(proof=proof()), prices=PRICES)
    cost = plan(done).status["cost"]
    assert (cost["cpuHours"], cost["gpuHours"], cost["money"], cost["currency"]) == (1.0, 0.5, 2.5, "EUR")
    assert (cost["gainPerHour"], cost["gainPerMoney"]) == (458.0 / 0.5, 183.2)
    assert cost_sentence(cost) == "1 CPU-hours, 0.5 GPU-hours, 2.5 EUR; gained 916 per GPU-hour, 183.2 per EUR"
    unpriced = plan(replace(done, prices=None)).status["cost"]
    assert "money" not in unpriced
    assert unpriced["gainPerHour"] == 916.0


def test_time_keeps_the_price_it_was_counted_at_until_the_currency_is_another() -> None:
    world = working(pod(NOW - 30 * MINUTE), prices=PRICES)
    world = replace(after(world, plan(world)), now=NOW + 30 * MINUTE)
    costs = [plan(replace(world, prices=Prices(2, 4, currency))).status["cost"] for currency in ("EUR", "CHF")]
    assert [(cost["money"], cost["currency"]) for cost in costs] == [(0.5 + 2.0, "EUR"), (4.0, "CHF")]


def test_metrics_grow_by_what_each_status_adds_and_a_study_adds_nothing_itself() -> None:
    world = working(pod(NOW - 30 * MINUTE), prices=PRICES)
    first = plan(world)
    spent = {(item.what, item.result): item.amount for item in happenings("TrainingJob", world, first)}
    assert spent == {("reserved", "cpu"): 3600.0, ("spent", "EUR"): 0.5}
    world = replace(after(world, first), now=NOW + 30 * MINUTE)
    assert {item.amount for item in happenings("TrainingJob", world, plan(world))} == {3600.0, 0.5}
    study = replace(first, status=first.status | {"study": {}})
    assert happenings("TrainingJob", working(), study) == ()


def test_a_study_costs_what_its_trials_do() -> None:
    cluster = Cluster(study_spec(trials=4), values=float)
    assert run_study(cluster).status["cost"] == {"cpuHours": 1.0, "gpuHours": 0.0, "gainPerHour": 458.0}


def test_a_study_costs_no_less_when_trials_are_deleted() -> None:
    cluster, costs = Cluster(study_spec(trials=4, parallelism=1), values=float), [0.0]
    while len(cluster.ends) < 3:
        for number in cluster.ends:
            cluster.jobs.pop(f"s-t{number}", None)
        cluster.apply(decide(cluster.gather()))
        cluster.work()
        costs.append((cluster.status.get("cost") or {}).get("cpuHours", 0.0))
    assert (costs, costs[-1]) == (sorted(costs), 0.75)
