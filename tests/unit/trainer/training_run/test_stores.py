"""The two stores: a directory, and the data plane's REST interface over real sockets."""

import json
import resource
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from learnloop_api.wire.training import Heartbeat
from learnloop_api.wire.trajectory import EpisodeSelection
from learnloop_trainer.errors import StoreRefused, StoreUnavailable
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.store.data_plane_store import DataPlaneStore, Http
from learnloop_trainer.store.run_store import DirectoryStore, digest
from learnloop_trainer.training_order import Place


class Server(ThreadingHTTPServer):
    """Answers from a script, then 200, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[tuple[int, bytes]] = []
        self.answer: tuple[bytes, dict[str, str]] = (b"{}", {})
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        content, headers = self.server.answer
        status, content = self.server.script.pop(0) if self.server.script else (200, content)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = _serve

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def plane(
    server: Server, token: Path = Path("/nowhere"), patience: float = 60, agent: str | None = None
) -> DataPlaneStore:
    return DataPlaneStore(Http(server.url, token, "", patience), "job-1", agent)


def test_a_checkpoint_is_sent_with_digest_and_step_and_soon_after_the_data_plane_is_back(server, monkeypatch):
    store, pauses = plane(server), list[float]()
    monkeypatch.setattr(store._http.closing, "wait", pauses.append)
    server.script = [(503, b"{}"), (500, b"oops"), *[(503, b"")] * 10]
    assert store.put_checkpoint(b"state", 7) == digest(b"state")
    assert len(server.requests) == 13
    assert max(pauses) <= 3.0
    method, path, headers, body = server.requests[-1]
    assert (method, path, body) == ("PUT", "/api/v1/training/runs/job-1/checkpoint", b"state")
    assert (headers["x-learnloop-sha256"], headers["x-learnloop-step"]) == (digest(b"state"), "7")


def test_the_token_is_read_anew_for_each_request(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    store = plane(server, token)
    store.put_checkpoint(b"1", 1)
    token.write_text("new\n")
    store.put_checkpoint(b"2", 2)
    assert [headers["authorization"] for _, _, headers, _ in server.requests] == ["Bearer old", "Bearer new"]


def test_a_refusal_is_not_retried_and_says_why(server: Server) -> None:
    error = {"error": {"field": "x-learnloop-sha256", "value": "", "message": "does not match the body"}}
    server.script = [(422, json.dumps(error).encode())]
    with pytest.raises(StoreRefused, match="422 x-learnloop-sha256: does not match the body"):
        plane(server).put_checkpoint(b"state", 7)
    assert len(server.requests) == 1


def test_retries_end_after_a_bounded_time(server: Server) -> None:
    server.script = [(503, b"")] * 50
    with pytest.raises(StoreUnavailable, match=r"503 .*gave up"):
        plane(server, patience=0.5).put_checkpoint(b"state", 7)
    assert len(server.requests) < 10, "the script has 50 refusals: time ended the retries, not the server"


def test_a_checkpoint_comes_back_only_when_its_digest_is_right(server: Server) -> None:
    server.answer = (b"state", {"x-learnloop-sha256": digest(b"state"), "x-learnloop-step": "7"})
    saved = plane(server).checkpoint()
    assert (saved.body, saved.step) == (b"state", 7)
    server.answer = (b"damaged", server.answer[1])
    with pytest.raises(StoreRefused, match="SHA-256"):
        plane(server).checkpoint()
    server.script = [(404, b"{}")]
    assert plane(server).checkpoint(back=1) is None
    assert server.requests[-1][1].endswith("/checkpoint?back=1")


def test_an_artifact_answer_must_name_what_was_sent(server: Server) -> None:
    sha256 = digest(b"model")
    good = {"uri": f"learnloop://default/{sha256}", "sha256": sha256, "size_bytes": 5}
    server.answer = (json.dumps(good).encode(), {})
    assert plane(server).put_artifact(b"model") == good["uri"]
    with pytest.raises(StoreRefused, match="stored"):
        plane(server).put_artifact(b"other")


def test_observations_that_are_no_numbers_are_refused(server: Server) -> None:
    server.answer = (b'{"observations": [[1, 2]]}', {})
    assert plane(server).observations("pole", 5) == [[1, 2]]
    assert server.requests[-1][1] == "/api/v1/experience/observations?agent=pole&limit=5"
    server.answer = (b'{"observations": [["a"]]}', {})
    with pytest.raises(StoreRefused, match="observations of pole"):
        plane(server).observations("pole", 5)


def test_heartbeats_survive_an_outage_and_never_block(server, make_order, capsys, monkeypatch):
    server.script = [(503, b"")]
    store, senders = plane(server), list[str]()
    send = store.heartbeat

    def noted(beat: Heartbeat) -> None:
        senders.append(threading.current_thread().name)
        send(beat)

    monkeypatch.setattr(store, "heartbeat", noted)
    reporter = Reporter(make_order(), Place(), store)
    reporter.start()
    reporter.phase("training")
    end = time.monotonic() + 120
    while len(server.requests) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert set(senders) == {"heartbeat"}, "no caller waits for the data plane"
    reporter.finish("done", "all well")
    last = Heartbeat.model_validate_json(server.requests[-1][3])
    assert (last.phase, last.message, last.job) == ("done", "all well", "small-1")
    assert last.at <= datetime.now(UTC)
    output = capsys.readouterr().out
    assert "heartbeats do not get through, training continues" in output


def test_a_directory_keeps_the_two_newest_checkpoints_and_names_the_damaged_one(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, "job")
    assert store.checkpoint() is None
    (tmp_path / "runs/job").mkdir(parents=True)
    (tmp_path / "runs/job/.0.safetensors.killed").write_bytes(b"half of one")
    for step, body in enumerate((b"one", b"two", b"three", b"three"), 1):
        store.put_checkpoint(body, step)
    assert len(list((tmp_path / "runs/job").glob("*.safetensors*"))) == 2
    (tmp_path / "runs/job" / f"{digest(b'three')}.safetensors").write_bytes(b"thr")
    with pytest.raises(StoreRefused, match=r"checkpoint of step 4: SHA-256 .* damaged"):
        store.checkpoint()
    before = store.checkpoint(back=1)
    assert (before.body, before.step) == (b"two", 2)


def test_a_full_disk_leaves_no_half_file_behind(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, "job")
    store.put_checkpoint(b"good", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # Python ignores SIGXFSZ, so that the write fails
    try:
        with pytest.raises(StoreUnavailable, match="File too large"):
            store.put_checkpoint(bytes(8192), 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in (tmp_path / "runs/job").iterdir()} == {
        "checkpoint.json",
        f"{digest(b'good')}.safetensors",
    }
    saved = store.checkpoint()
    assert saved.body == b"good"


def test_a_directory_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"cannot be written .*; free space or fix its rights"):
        DirectoryStore(tmp_path / "file", "job").put_checkpoint(b"", 0)


def test_episodes_are_read_page_by_page_each_after_the_one_before(server: Server) -> None:
    step = b'{"observation": [1, 2], "action": 1, "reward": 0.5}'

    def page(numbers: range, following: str) -> bytes:
        body = b'{"trajectory_id": "t%d", "policy_revision": "r", "episode_return": 1, "steps": [%b, %b], "new": 1}'
        episodes = b",".join(body % (number, step, step) for number in numbers)
        return b'{"trajectories": [%b], "next": %b}' % (episodes, following.encode())

    store, everything = plane(server), EpisodeSelection()
    server.answer = (page(range(1), "null"), {})
    (first,) = store.episodes("pole", everything, 5)
    assert (first.trajectory_id, first.steps[0].action, first.steps[0].reward) == ("t0", 1, 0.5)
    assert server.requests[-1][1] == "/api/v1/experience/trajectories?agent=pole&limit=20"
    server.script = [(200, page(range(20), '"417"'))]
    server.answer = (page(range(20, 40), '"397"'), {})
    assert [one.trajectory_id for one in store.episodes("pole", everything, 80)] == [f"t{n}" for n in range(40)]
    assert server.requests[-1][1].endswith("limit=20&after=417")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    selection = EpisodeSelection(since=since, tasks=["a b", "c"], min_reward=0.5, success=False, source="clickhouse")
    store.episodes("pole", selection, 1)
    wanted = "source=clickhouse&since=2026-01-01T00%3A00%3A00Z&tasks=a+b&tasks=c&min_reward=0.5&success=false"
    assert server.requests[-1][1].endswith(wanted.replace("+", "%20")) or server.requests[-1][1].endswith(wanted)
    server.answer = (b'{"trajectories": [{"steps": []}], "next": null}', {})
    with pytest.raises(StoreRefused, match=r"log of pole: .*not what was expected"):
        store.episodes("pole", everything, 5)


def test_a_reward_policy_is_read_by_its_revision(server: Server) -> None:
    server.answer = (b'{"components": [{"name": "won", "type": "success", "weight": 1}]}', {})
    assert plane(server).reward_policy("wins", "r1").components[0].name == "won"
    assert server.requests[-1][1] == "/api/v1/rewards/policies/wins/revisions/r1"
    server.script = [(404, b"{}")]
    with pytest.raises(StoreRefused, match="reward policy wins: the data plane has no revision r2; publish it"):
        plane(server).reward_policy("wins", "r2")


def test_who_reads_a_log_is_told_how_far_it_is_and_what_does_not_answer(server: Server) -> None:
    away = b'{"error": {"field": null, "value": null, "message": "PostgreSQL does not answer; send it again"}}'
    server.script = [(503, away)]
    server.answer = (b'{"trajectories": [], "next": null}', {})
    store, read, waited = plane(server), list[str](), list[str]()
    store.follow(read.append, waited.append)
    assert store.episodes("pole", EpisodeSelection(), 5) == []
    assert read == ["reads the log of pole: page 1"]
    (cause, over) = waited
    assert cause.endswith(": 503 PostgreSQL does not answer; send it again")
    assert over == ""
