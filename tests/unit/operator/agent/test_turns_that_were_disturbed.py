"""Turns whose runs fail, are deleted, come twice or belong to a new agent of the same name: no episode judges twice."""

from itertools import pairwise

from hypothesis import given, settings, strategies as st

from learnloop_api import names
from learnloop_api.kinds.training.evaluation import EPISODES_PER_RUN
from learnloop_environments.interfaces.foreign_spaces import foreign_seeds
from learnloop_environments.randomness import Split
from learnloop_operator.agents.decide_agent import decide

from .test_learning_agent import job, situation, spec

DISTURBANCES = ("none", "fails", "is deleted", "status is lost", "operator dies before the status")
TASKS = (
    {"environment": {"name": "CartPole-v1"}},
    {"external": {"trainingEnvironment": "worlds:DictWorld"}, "observations": 9, "actions": 3},
    {"external": {"trainingEnvironment": "worlds:Team"}, "observations": 6, "continuous": [{"low": -1, "high": 1}]},
)


def proofs(task: dict, uid: str, disturbed: list[str]) -> list[tuple[int, int]]:
    """Seed and first episode of every run that `decide` begins, whatever becomes of them."""
    body = spec()
    body["task"] = task
    status = {"registered": "solving/r1"}
    windows, jobs = [], ()
    for turn, how in enumerate(disturbed):
        notes = {names.ANNOTATION_TRAIN: f"turn {turn}"}
        snapshot = situation(0, spec=body, before=status, jobs=jobs, annotations=notes)
        snapshot.object["metadata"]["uid"] = uid
        plan = decide(snapshot)
        begun = [item for item in plan.apply if item["kind"] == "TrainingJob"]
        assert len(begun) == 1, plan.status["conditions"]
        proof = begun[0]["spec"]["evaluation"]
        windows.append((proof["seed"], proof["firstEpisode"]))
        number = int(begun[0]["metadata"]["name"].removeprefix("la-"))
        ended = job(number, "Failed" if how == "fails" else "Validated")
        before, status = status, dict(plan.status)
        if how == "is deleted":
            jobs = ()
        elif how == "operator dies before the status":
            status, jobs = before, (ended,)
        elif how == "status is lost":
            status, jobs = {"registered": "solving/r1"}, (ended,)
        else:
            jobs = (ended,)
    return windows


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TASKS), st.uuids(), st.lists(st.sampled_from(DISTURBANCES), min_size=2, max_size=12))
def test_no_held_out_episode_judges_two_runs_whatever_became_of_them(task, uid, disturbed):
    pairs = proofs(task, str(uid), disturbed)
    assert len({seed for seed, _ in pairs}) == 1, "one seed for all runs"
    firsts = [first for _, first in pairs]
    assert all(later - earlier >= EPISODES_PER_RUN for earlier, later in pairwise(firsts)), firsts
    seeds = [seed for proof, first in pairs for seed in foreign_seeds(Split.HELD_OUT, proof, range(first, first + 100))]
    assert len(set(seeds)) == 100 * len(pairs)
