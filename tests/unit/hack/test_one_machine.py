"""Stand-ins for a cluster on one machine: server-side apply, and the arithmetic of a Prometheus."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from learnloop_local import __main__ as program, machine
from learnloop_local.prometheus import Prometheus
from learnloop_local.store import Refused, Store, refuse_unknown_fields
from learnloop_operator.kube import kinds
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.queries import Arms, arm_evidence, counters_query
from learnloop_serving.server_metrics import Metrics
from testing.malformed_objects import CASES, GOOD, changed, malformed

ROOT = Path(__file__).resolve().parents[3]
POD = {"metadata": {"namespace": "default", "name": "cart-aaaaaaaa-0123456789-abcde"}}
ARMS = Arms("default", "cart", ["aaaaaaaa"])
STUBBORN = """
import subprocess, sys
from learnloop_operator.cli.cluster import with_its_parent
command = with_its_parent(["sh", "-c", "trap '' TERM; echo runs; while :; do sleep 1; done"], 1)
subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True).wait()
"""


def config_map(**data: str) -> dict:
    return {"metadata": {"name": "cm"}, "data": data}


def test_who_applies_removes_what_he_leaves_out_and_no_field_of_others() -> None:
    store = Store()
    where = kinds.CONFIG_MAP, "default", "cm"
    first = store.apply(*where, config_map(ours="1", gone="2"), "us")
    store.apply(*where, config_map(others="3"), "them")
    last = store.apply(*where, config_map(ours="1"), "us")
    assert last["data"] == {"ours": "1", "others": "3"}
    assert store.apply(*where, config_map(ours="1"), "us") == last, "no write without a change"
    stale = config_map(ours="4") | {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}}
    with pytest.raises(Refused, match="the object has changed"):
        store.apply(*where, stale, "us")


def test_children_go_with_their_owner_and_a_spec_is_validated() -> None:
    store = Store()
    owner = store.create(kinds.CONFIG_MAP, "default", config_map())
    references = {"metadata": {"name": "child", "ownerReferences": [{"uid": owner["metadata"]["uid"]}]}}
    store.create(kinds.SERVICE, "default", references)
    store.delete(kinds.CONFIG_MAP, "default", "cm", {})
    assert not store.every(kinds.SERVICE)
    wrong = {"metadata": {"name": "md"}, "spec": {"model": {"uri": 3}}}
    with pytest.raises(Refused, match=r"ModelDeployment md: spec\.model\.uri: 3"):
        store.create(kinds.MODEL_DEPLOYMENT, "default", wrong)


def created(body: dict) -> None:
    kind = kinds.kind_of(body)
    refuse_unknown_fields(kind, body["metadata"]["name"], body)
    Store().create(kind, "default", body)


def test_what_an_api_server_refuses_is_refused_in_its_words() -> None:
    answers = []
    for body in map(changed, GOOD):
        created(body)
    for case in CASES:
        with pytest.raises(Refused) as refusal:
            created(malformed(case))
        answers.append(case["field"] in str(refusal.value) and case["fix"] in str(refusal.value))
    assert sum(answers) > 0.85 * len(CASES), "types and bounds are in pydantic's words"
    store = Store()
    store.create(kinds.TRAINING_JOB, "default", changed("TrainingJob"))
    with pytest.raises(Refused, match=r"spec\.seed: seed is immutable"):
        store.apply(kinds.TRAINING_JOB, "default", "walker-1", changed("TrainingJob", {"spec.seed": 7}), "us")


def test_the_operators_own_query_counts_what_a_policy_server_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now, local, metrics = 10_000.0, Prometheus(Store()), Metrics("cart", "aaaaaaaa")
    for second in range(60):
        monkeypatch.setattr("learnloop_local.prometheus.time.time", lambda at=now + second: at)
        metrics.ended("success", 100.0, 1.0)
        local.take({"pod": (POD, metrics.render().decode())})
    samples = [Sample(labels, value) for labels, value in local.rows(counters_query(ARMS, 30, 10, 60))]
    arm = arm_evidence(samples)["aaaaaaaa"]
    assert (arm.episodes, arm.lately) == (30, 10)
    assert arm.mean_return == pytest.approx(100.0)
    with pytest.raises(ValueError, match="rate"):
        local.rows("rate(learnloop_episodes_ended_total[30s])")


def test_a_killed_process_takes_a_program_along_that_ignores_sigterm() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "runs\n"
        parent.kill()
        parent.communicate(timeout=60)  # until no process holds the output


async def test_up_says_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    store, sentence = Store(), "RewardPolicy 'lake' has no published revision yet: apply it, or correct the name"
    store.create(kinds.LEARNING_AGENT, "default", yaml.safe_load(LAKE))
    ready = {"type": "Ready", "status": "False", "message": sentence}
    store.status(kinds.LEARNING_AGENT, *store.every(kinds.LEARNING_AGENT), {"phase": "Pending", "conditions": [ready]})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(program._follow(store), 0.1)
    assert capsys.readouterr().out == f"LearningAgent lake: Pending: {sentence}\n"


LAKE = """
apiVersion: learnloop.dev/v1alpha1
kind: LearningAgent
metadata: {name: lake}
spec:
  rewardPolicyRef: {name: lake}
  task: {environment: {name: FrozenLake-v1}}
  deployment: {template: {rollout: {steps: [{weight: 10, minEpisodes: 6}, {weight: 100}]}}}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "refusal"),
    [
        ("minEpisodes", "minEpisode", r"LearningAgent lake: spec\..*steps\[0\]\.minEpisode: .*you mean minEpisodes\?"),
        ("name: lake}\nspec", "}\nspec", r"agent\.yaml: LearningAgent: metadata\.name: ''"),
        ("{name: lake}\nspec", "{name: My_Lake}\nspec", r"metadata\.name: 'My_Lake'"),
        ("v1alpha1", "v2", r"apiVersion, kind: \['learnloop\.dev/v2', 'LearningAgent'\]"),
        ("spec:", "spec: [", r"agent\.yaml"),
    ],
)
def test_a_file_is_refused_before_anything_starts(tmp_path: Path, right: str, wrong: str, refusal: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(LAKE.replace(right, wrong, 1))
    up = [sys.executable, "-m", "learnloop_local", "local", "up", str(file)]
    settings = os.environ | {"LEARNLOOP_LOCAL": str(tmp_path), "PYTHONPATH": str(ROOT / "hack")}
    ended = subprocess.run(up, env=settings, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.search(refusal, ended.stderr), ended.stderr
    assert not (tmp_path / "local").exists()


@pytest.mark.parametrize("place", ["", "local"])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / place).chmod(0o777)
    with pytest.raises(machine.CannotStart, match="others may write there"):
        machine.stop(tmp_path / "local", 0.0)
