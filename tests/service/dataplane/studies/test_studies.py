"""Studies on real PostgreSQL: no trial is lost or doubled, whatever dies, and no namespace sees another's."""

import asyncio
from pathlib import Path
from statistics import median

import asyncpg

from ..conftest import Api, running, settings

SPACE = [
    {"parameter": "learningRate", "float": {"low": 1e-4, "high": 1e-1, "log": True}},
    {"parameter": "epochs", "int": {"low": 1, "high": 8}},
    {"parameter": "hidden", "layers": [[64, 64], [128]]},
    {"parameter": "normaliseObservations", "choices": ["true", "false"]},
]


def order(job: str, **changes) -> dict:
    base = {
        "job": job,
        "owner": "uid-1",
        "trials": 20,
        "space": SPACE,
        "direction": "maximize",
        "seed": 3,
        "startup_trials": 4,
        "pruner": {"type": "median", "startupTrials": 2, "warmup": 0},
    }
    return base | changes


class Study:
    """One study, spoken to over HTTP."""

    def __init__(self, api: Api, job: str) -> None:
        self.api, self.path, self.job = api, f"/api/v1/training/studies/{job}", job

    async def begin(self, status: int = 200, **changes):
        return await self.api.call("PUT", self.path, status, json=order(self.job, **changes))

    async def trial(self, number: int, status: int = 200):
        return await self.api.call("PUT", f"{self.path}/trials/{number}", status)

    async def progress(self, number: int, rung: int, value: float):
        report = {"rung": rung, "value": value}
        return await self.api.call("PUT", f"{self.path}/trials/{number}/progress", 200, json=report)

    async def end(self, number: int, state: str, value: float | None = None, status: int = 200, **more):
        report = {"state": state, "value": value, **more}
        return await self.api.call("PUT", f"{self.path}/trials/{number}/result", status, json=report)

    async def state(self, status: int = 200, **kwargs):
        return await self.api.call("GET", self.path, status, **kwargs)


async def test_a_trial_has_values_of_every_kind_within_their_bounds_and_keeps_them(api: Api) -> None:
    study = Study(api, "kinds")
    await study.begin()
    first = await study.trial(0)
    parameters = first["parameters"]
    assert 1e-4 <= parameters["learningRate"] <= 1e-1
    assert parameters["epochs"] in range(1, 9)
    assert parameters["hidden"] in ([64, 64], [128])
    assert parameters["normaliseObservations"] in (True, False)
    assert await study.trial(0) == first
    assert (await study.state())["trials"] == [first]


async def test_trials_begin_in_order_and_no_more_than_were_ordered(api: Api) -> None:
    study = Study(api, "few")
    await study.begin(trials=2)
    assert "ask for the next one" in (await study.trial(1, 409))["error"]["message"]
    await study.trial(0)
    await study.trial(1)
    assert (await study.trial(2, 409))["error"]["field"] == "number"
    await study.trial(1000, 422)


async def test_askers_at_the_same_moment_never_make_two_of_one_trial(api: Api) -> None:
    study = Study(api, "race")
    await study.begin()
    for number in range(3):
        answers = await asyncio.gather(*(study.trial(number) for _ in range(6)))
        assert all(answer == answers[0] for answer in answers)
    trials = (await study.state())["trials"]
    assert [trial["number"] for trial in trials] == [0, 1, 2]
    assert len({trial["parameters"]["learningRate"] for trial in trials}) == 3


async def test_a_trial_that_does_worse_than_the_others_is_to_be_stopped_and_one_that_does_not_goes_on(api: Api) -> None:
    study = Study(api, "prune")
    await study.begin()
    for number, value in enumerate((10.0, 12.0)):
        await study.trial(number)
        for rung in (1, 2):
            assert not (await study.progress(number, rung, value))["prune"]
        await study.end(number, "complete", value)
    await study.trial(2)
    await study.trial(3)
    assert (await study.progress(2, 1, 1.0))["prune"]
    assert not (await study.progress(3, 1, 20.0))["prune"]
    assert (await study.progress(3, 1, -5.0))["reported"] == 1  # said twice: the first counts
    pruned = await study.end(2, "pruned")
    assert (pruned["state"], pruned["value"]) == ("pruned", 1.0)


async def test_the_first_end_of_a_trial_counts_and_the_best_is_the_best_complete_one(api: Api) -> None:
    study = Study(api, "ends")
    await study.begin()
    for number in range(4):
        await study.trial(number)
    assert (await study.end(0, "complete", None, 422))["error"]["field"] == "value"
    spent = {"cpu_hours": 2.0, "gpu_hours": 0.5, "money": 3.0, "currency": "EUR"}
    await study.end(0, "complete", 5.0, spent=spent)
    again = await study.end(0, "failed", spent=spent | {"cpu_hours": 9.0})
    assert (again["state"], again["spent"]) == ("complete", spent)
    await study.end(1, "complete", 7.0)
    await study.end(2, "failed")
    state = await study.state()
    assert [trial["state"] for trial in state["trials"]] == ["complete", "complete", "failed", "running"]
    assert state["best"] == 1
    assert (await study.end(9, "failed", None, 404))["error"]["field"] == "number"


async def test_the_estimator_comes_nearer_to_the_optimum_than_chance(api: Api) -> None:
    study = Study(api, "learns")
    await study.begin(trials=40, startup_trials=10, space=[{"parameter": "clip", "float": {"low": 0, "high": 1}}])
    distances = []
    for number in range(30):
        clip = (await study.trial(number))["parameters"]["clip"]
        distances.append(abs(clip - 0.3))
        await study.end(number, "complete", -distances[-1])
    assert median(distances[20:]) < 0.1  # 0.25 by chance


async def test_a_service_that_died_in_mid_study_goes_on_where_it_was(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path)) as api:
        study = Study(api, "resumed")
        await study.begin()
        before = [await study.trial(number) for number in range(2)]
        await study.end(0, "complete", 1.0)
    # A process killed between two parameters of a trial leaves it with the first ones only.
    connection = await asyncpg.connect(dsn)
    deleted = await connection.execute(
        "DELETE FROM optuna.trial_params p USING optuna.trials t, optuna.studies s WHERE p.trial_id = t.trial_id AND"
        " t.study_id = s.study_id AND study_name = 'team-a/resumed' AND number = 1 AND param_name <> 'learningRate'"
    )
    await connection.close()
    assert deleted == "DELETE 3"
    async with running(**settings(dsn, tmp_path)) as api:
        study = Study(api, "resumed")
        await study.begin()
        after = await study.trial(1)
        assert after["parameters"].keys() == before[1]["parameters"].keys()
        assert after["parameters"]["learningRate"] == before[1]["parameters"]["learningRate"]
        assert (await study.trial(2))["number"] == 2
        assert (await study.state())["best"] == 0


async def test_a_namespace_sees_its_own_studies_only(api: Api) -> None:
    study = Study(api, "private")
    await study.begin()
    await study.trial(0)
    await study.state(404, namespace="team-b")
    await api.call("PUT", f"{study.path}/trials/0", 404, namespace="team-b")
    await api.call("DELETE", study.path, 204, namespace="team-b")
    assert len((await study.state())["trials"]) == 1


async def test_a_new_job_of_an_old_name_begins_anew_and_another_order_of_the_same_job_is_refused(api: Api) -> None:
    study = Study(api, "again")
    await study.begin()
    await study.trial(0)
    assert len((await study.begin())["trials"]) == 1
    assert "use a new TrainingJob" in (await study.begin(409, trials=9))["error"]["message"]
    assert (await study.begin(owner="uid-2", trials=9))["trials"] == []
    await api.call("DELETE", study.path, 204)
    await api.call("DELETE", study.path, 204)
    await study.state(404)


async def test_of_two_objectives_the_cheapest_trial_near_the_best_wins(api: Api) -> None:
    """t2 is beaten by t1 in both; t3 is cheap and bad; within a tenth of 100 - 20 of the best, t1 is the cheapest."""
    study = Study(api, "thrifty")
    await study.begin(cost_tolerance=0.1)
    ends = [(100.0, 9.0), (93.0, 3.0), (90.0, 4.0), (20.0, 1.0)]
    for number, (value, cost) in enumerate(ends):
        await study.trial(number)
        report = {"state": "complete", "value": value}
        path = f"{study.path}/trials/{number}/result"
        assert (await api.call("PUT", path, 422, json=report))["error"]["field"] == "cost"
        await study.progress(number, 1, -1000.0)
        await api.call("PUT", path, 200, json=report | {"cost": cost})
    state = await study.state()
    assert (state["best"], state["front"]) == (1, [3, 1, 0])
    assert [trial["cost"] for trial in state["trials"]] == [9.0, 3.0, 4.0, 1.0]
    assert not any(trial["prune"] for trial in state["trials"]), "one of two objectives stops nothing"
