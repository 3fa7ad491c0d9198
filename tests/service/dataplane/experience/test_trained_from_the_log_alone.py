"""An agent with `external: {}`: its episodes go to a real data plane, and a run has nothing else to learn from."""

import httpx

from learnloop_api import names
from learnloop_trainer.export import Behaving, OnnxPolicy
from learnloop_trainer.store import VARIABLE, choose
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run
from testing.servers.data_plane_process import Product
from testing.training.recordings import bandit

EPISODES = 300
SPACES = "uniform://discrete/3?observations=3"


def test_what_an_agent_logged_trains_proves_and_exports_its_next_policy(dsn, tmp_path, monkeypatch):
    real = bandit(tmp_path / "log.jsonl", episodes=EPISODES, steps=2, right=0.7)
    with Product(dsn, tmp_path, tmp_path / "artifacts") as product:
        url = f"http://127.0.0.1:{product.port}"
        with httpx.Client(base_url=url, headers={"X-LearnLoop-Namespace": "team-a"}, timeout=60) as agent:
            for line in (tmp_path / "log.jsonl").read_text().splitlines():
                answer = agent.post("/api/v1/trajectories", content=line)
                assert answer.status_code == 202, answer.text
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setenv(names.ENV_DATA_URL, url)
        monkeypatch.setenv(names.ENV_NAMESPACE, "team-a")
        spec = {
            "algorithm": "cql",
            "totalSteps": 20_000,
            "data": {"spaces": SPACES, "learningAgentRef": {"name": "la"}},
            "export": {"behaviour": {"kind": "sampled", "temperature": 0.1}},
        }
        order = Order.model_validate({"job": "alone-1", "spec": spec})
        run(order, Place(), 1)
        store = choose({names.ENV_DATA_URL: url, names.ENV_NAMESPACE: "team-a"}, order.job, "la")
        proof = store.proof()
        body = store.artifact(proof.artifact_uri)
    assert proof.environment == SPACES
    assert proof.experience is not None
    assert proof.off_policy.verdict, proof.off_policy.message
    judged = proof.off_policy.episodes
    assert proof.experience.steps == 2 * (EPISODES - judged), "what proves is not learned from"
    assert proof.difference.low > 0, "better than what was logged"
    worth = real(Behaving(OnnxPolicy(body, 3, 3), 0), proof.off_policy.discount)
    assert proof.evaluation.ci_low <= worth <= proof.evaluation.ci_high
