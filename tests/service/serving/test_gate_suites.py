"""A suite as its Job runs it: a process that asks over the network, and a second one that hands the report in."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from learnloop_api.kinds.rollouts.gates import GateSuite
from learnloop_api.wire.deployment import GateReport, StoredReport
from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_operator.rollout.gate_verdict import SuiteRun, judge_suite
from testing.servers.language_candidate import Candidate, served
from testing.servers.policy_servers import CANARY, STABLE, LiveServer, linear_policy, table, write_policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).resolve().parents[3]


def suite(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m learnloop_gates COMMAND` with what the operator tells a suite."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("crds", "serving_image"))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": paths,
        "LEARNLOOP_GATE_SUITE": "s",
        "LEARNLOOP_GATE_SAMPLES": "100",
        "LEARNLOOP_GATE_REPORT": str(folder / "report.json"),
        "LEARNLOOP_MODEL_DEPLOYMENT": "cart",
        "LEARNLOOP_NAMESPACE": "team-a",
        "LEARNLOOP_GATE_CANDIDATE": CANARY,
    }
    program = [sys.executable, "-m", "learnloop_gates", command]
    return subprocess.run(program, env=environment | env, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(("fault", "failed"), [("", 0), ("leaking", 15)])
def test_a_suite_asks_a_candidate_over_the_network_and_writes_its_report(fault, failed, tmp_path):
    with served(Candidate(fault)) as url:
        done = suite("run", tmp_path, LEARNLOOP_GATE_BUILTIN="leak", LEARNLOOP_GATE_CANDIDATE_URL=url)
    assert done.returncode == 0, done.stderr
    report = GateReport.model_validate_json((tmp_path / "report.json").read_bytes())
    assert (report.n, report.errors, report.revision) == (100, 0, CANARY)
    assert report.failed >= failed
    assert bool(report.failed) == bool(fault)


def test_a_candidate_that_is_not_there_is_counted_in_errors(tmp_path: Path) -> None:
    done = suite(
        "run",
        tmp_path,
        LEARNLOOP_GATE_BUILTIN="leak",
        LEARNLOOP_GATE_SAMPLES="4",
        LEARNLOOP_GATE_CANDIDATE_URL="http://127.0.0.1:9",
    )
    assert done.returncode == 0, done.stderr
    report = GateReport.model_validate_json((tmp_path / "report.json").read_bytes())
    assert (report.n, report.errors) == (0, 4)


def test_a_suite_without_what_it_needs_ends_with_the_reason(tmp_path: Path) -> None:
    done = suite("run", tmp_path, LEARNLOOP_GATE_BUILTIN="toxicity", LEARNLOOP_GATE_CANDIDATE_URL="http://x")
    assert done.returncode == 1
    assert "set url and model of a judge" in done.stderr
    assert not (tmp_path / "report.json").exists()


class Receiver(ThreadingHTTPServer):
    """A data plane that is away at first, and takes what comes then."""

    def __init__(self, answers: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.got = answers, list[tuple[str, bytes, dict[str, str]]]()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, body, {key.lower(): value for key, value in self.headers.items()}))
        self.send_response(self.server.answers.pop(0))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator:
    servers: list[Receiver] = []

    def start(*answers: int) -> Receiver:
        servers.append(Receiver(list(answers)))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_report_is_handed_in_with_the_pods_own_token_once_the_data_plane_answers(receiver, tmp_path):
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "token").write_text("secret\n")
    plane = receiver(503, 201)
    environment = {"LEARNLOOP_GATE_JOB": "cart-gate-1", "LEARNLOOP_DATA_URL": plane.url}
    done = suite("deliver", tmp_path, **environment, LEARNLOOP_TOKEN_FILE=str(tmp_path / "token"))
    assert done.returncode == 0, done.stderr
    path, body, headers = plane.got[-1]
    assert path == "/api/v1/models/cart/gates/cart-gate-1/report"
    assert body == b"{}"
    assert headers["authorization"] == "Bearer secret"
    assert headers["x-learnloop-sha256"] in done.stdout


def test_a_report_that_is_refused_or_missing_ends_the_pod_with_the_reason(receiver, tmp_path: Path) -> None:
    environment = {"LEARNLOOP_GATE_JOB": "cart-gate-1", "LEARNLOOP_DATA_URL": receiver(403).url}
    missing = suite("deliver", tmp_path, **environment)
    assert missing.returncode == 1
    assert "the suite's container must write its report there" in missing.stderr
    (tmp_path / "report.json").write_text("{}")
    refused = suite("deliver", tmp_path, **environment)
    assert refused.returncode == 1
    assert "refuses the report: 403" in refused.stderr


def recorded(folder: Path) -> str:
    """Episodes in which the right action was taken at each of five observations, as a suite's ConfigMap has them."""
    tasks = folder / "tasks"
    tasks.mkdir()
    lines = []
    for number in range(100):
        signs = [1 if (number >> step) % 2 else -1 for step in range(5)]
        observations = [[sign * (1.0 + number), 0.0, 0.0, 0.0] for sign in signs]
        actions = [0 if sign > 0 else 1 for sign in signs]
        lines.append(json.dumps({"observations": observations, "actions": actions, "actions_allowed": 2}))
    (tasks / "episodes.jsonl").write_text("\n".join(lines))
    return str(tasks)


def wrong_policy(folder: Path) -> OnnxPolicy:
    """Takes the other action than the one that was recorded."""
    path = folder / "wrong.onnx"
    write_policy(path, weights=((-1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)))
    return OnnxPolicy(path)


@pytest.mark.parametrize(("wrong", "verdict"), [(False, "passed"), (True, "failed")])
def test_a_policy_of_numbers_is_judged_at_weight_0_by_what_was_recorded(wrong, verdict, tmp_path):
    good = linear_policy(tmp_path)
    canary = LiveServer(CANARY, policy=wrong_policy(tmp_path) if wrong else good).start()
    stable = LiveServer(STABLE, policy=good).start()
    try:
        for server in (canary, stable):
            server.route(table((STABLE, "stable", 100, stable.url), (CANARY, "canary", 0, canary.url)))
        done = suite(
            "run",
            tmp_path,
            LEARNLOOP_GATE_BUILTIN="replay",
            LEARNLOOP_GATE_DATA=recorded(tmp_path),
            LEARNLOOP_GATE_CANDIDATE_URL=canary.url,
            LEARNLOOP_GATE_STABLE_URL=stable.url,
            LEARNLOOP_GATE_STABLE=STABLE,
        )
    finally:
        canary.stop()
        stable.stop()
    assert done.returncode == 0, done.stderr
    report = GateReport.model_validate_json((tmp_path / "report.json").read_bytes())
    stored = StoredReport(job="j", sha256="e" * 64, received_at=NOW, report=report)
    spec = GateSuite.model_validate({"name": "s", "builtin": "replay", "samples": 100})
    run = SuiteRun("succeeded", "", NOW, stored)
    finding = judge_suite(spec, run, CANARY, waited=1.0, baseline=True, seconds=600.0, now=NOW)
    assert finding.verdict == verdict, finding.message


def test_a_first_model_at_its_gates_answers_whoever_names_it_and_nobody_else(tmp_path: Path) -> None:
    first = LiveServer(CANARY, policy=linear_policy(tmp_path)).start()
    try:
        first.route(table((CANARY, "canary", 0, first.url)))
        body = {"inputs": [{"name": "observation", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}]}
        refused = first.post("/v2/models/cart/infer", body)
        assert refused.status_code == 503
        assert "is at its gates" in refused.json()["error"]
        assert first.post("/v1/episodes", {}).status_code == 503
        assert first.post(f"/v2/models/cart/versions/{CANARY}/infer", body).status_code == 200
    finally:
        first.stop()
