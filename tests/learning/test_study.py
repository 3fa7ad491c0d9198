"""The example's search, as its trials train it: PostgreSQL, Optuna, trials two at a time, and the job's own gates."""

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import yaml

from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.training import Proof
from learnloop_api.wire.training_request import StudyOrder, TrialResult
from learnloop_dataplane.training.parameter_search import Studies
from learnloop_dataplane.training.study_storage import open_storage
from learnloop_operator.training import proof_gates
from learnloop_operator.training.study_trials import trial_name, trial_spec
from learnloop_trainer.floating_point import settle
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run
from testing.servers.postgres_server import own_postgres

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/study/study.yaml"
NAMESPACE = "default"


def trained(job: str, spec: dict, directory: Path) -> Proof:
    """A trial's whole life, in a process of its own."""
    settle(1)
    os.environ["LEARNLOOP_STORE"] = f"file://{directory}"
    run(Order.model_validate({"job": job, "spec": spec}), Place(), 1)
    proof = DirectoryStore(directory, job).proof()
    assert proof is not None
    return proof


def search(studies: Studies, job: str, spec: TrainingJobSpec, directory: Path) -> dict[int, Proof]:
    """Every trial trained to its end, as many at a time as the study allows; nothing is stopped early."""
    assert spec.study is not None
    proofs, begun, running = dict[int, Proof](), 0, dict[Future[Proof], int]()
    with ProcessPoolExecutor(spec.study.parallelism, multiprocessing.get_context("spawn")) as pool:
        while len(proofs) < spec.study.trials:
            while begun < spec.study.trials and len(running) < spec.study.parallelism:
                trial = studies.ask(NAMESPACE, job, begun)
                body = trial_spec(spec, trial.parameters)
                running[pool.submit(trained, trial_name(job, begun), body, directory)] = begun
                begun += 1
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(ended)
                proofs[number] = ended.result()
                validation = proofs[number].validation
                assert validation is not None
                value = getattr(validation, spec.study.objective)
                studies.result(NAMESPACE, job, number, TrialResult(state="complete", value=value))
    return proofs


def test_the_examples_study_ends_with_a_policy_that_passes_the_jobs_gates(tmp_path: Path) -> None:
    item = yaml.safe_load(EXAMPLE.read_text())
    job, spec = item["metadata"]["name"], TrainingJobSpec.model_validate(item["spec"])
    assert spec.study is not None
    with own_postgres() as server:
        studies = Studies(open_storage(server.get_uri("postgres")))
        study = spec.study.model_dump(include={"trials", "space", "direction", "seed", "startup_trials", "pruner"})
        studies.put(NAMESPACE, StudyOrder(job=job, owner="uid-1", **study))
        proofs = search(studies, job, spec, tmp_path)
        best = studies.get(NAMESPACE, job).best
    assert best is not None
    results = proof_gates.evaluate(spec.gates, proofs[best])
    assert {result.name for result in results} >= {"minReturn"}
    assert all(result.passed for result in results), [result.message for result in results]
