import hashlib
import math
import os
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from learnloop_common.acting.onnx_policy import OnnxPolicy
from learnloop_common.acting.policy import ModelError, choose
from learnloop_serving.policy_loader import fetch, load_policy, parse_uniform
from testing.servers.policy_servers import settings, write_policy
from testing.servers.ports import held_port


class Store(ThreadingHTTPServer):
    """A file server that can be told to fail first."""

    body = b""
    failures = 0
    paths: list[tuple[str, str | None]]


class Handler(BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        self.server.paths.append((self.path, self.headers["authorization"]))
        failing = self.server.failures > 0
        self.server.failures -= failing
        self.send_response(503 if failing else 404 if "missing" in self.path else 200)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    server = Store(("127.0.0.1", 0), Handler)
    write_policy(tmp_path / "m.onnx")
    server.body, server.paths = (tmp_path / "m.onnx").read_bytes(), []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def address(store: Store) -> str:
    return f"http://127.0.0.1:{store.server_address[1]}"


async def load(uri: str, digest: str, **env: str) -> object:
    return await load_policy(
        settings(LEARNLOOP_MODEL_URI=uri, LEARNLOOP_MODEL_SHA256=digest, LEARNLOOP_LOAD_RETRY_SECONDS="20", **env)
    )


async def test_a_policy_comes_from_the_data_plane_with_the_pods_own_identity(store: Store, tmp_path: Path) -> None:
    digest = hashlib.sha256(store.body).hexdigest()
    token = tmp_path / "token"
    token.write_text("abc\n")
    env = {"LEARNLOOP_DATA_URL": address(store), "LEARNLOOP_TOKEN_FILE": str(token)}
    policy = await load(f"learnloop://default/{digest}", digest, **env)
    assert policy.actions == 2
    assert store.paths == [(f"/api/v1/artifacts/{digest}", "Bearer abc")]
    with pytest.raises(ModelError, match="belongs to namespace other"):
        await load(f"learnloop://other/{digest}", digest, **env)


async def test_a_store_that_is_away_for_a_moment_is_waited_for(store: Store) -> None:
    store.failures = 2
    await load(f"{address(store)}/m.onnx", hashlib.sha256(store.body).hexdigest())
    assert len(store.paths) == 3
    assert store.paths[0][1] is None


async def test_a_server_that_is_killed_while_it_loads_leaves_nothing_on_its_disk(store, tmp_path, monkeypatch):
    left = list[list[str]]()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("learnloop_serving.policy_loader.OnnxPolicy", lambda _: left.append(os.listdir(tmp_path)))
    await load(f"{address(store)}/model", hashlib.sha256(store.body).hexdigest())
    assert left == [["m.onnx"]], "what the store serves"


async def test_a_store_that_stays_away_is_named() -> None:
    with held_port() as dead, pytest.raises(ModelError, match=r"could not be fetched for 0\.1 s"):
        await load_policy(
            settings(
                LEARNLOOP_MODEL_URI=f"http://127.0.0.1:{dead}/m",
                LEARNLOOP_MODEL_SHA256="0" * 64,
                LEARNLOOP_LOAD_RETRY_SECONDS="0.1",
            )
        )


async def test_a_missing_file_and_a_wrong_digest_are_told_apart(store: Store) -> None:
    with pytest.raises(ModelError, match="HTTP 404"):
        await load(f"{address(store)}/missing", "0" * 64)
    with pytest.raises(ModelError, match=f"has {hashlib.sha256(store.body).hexdigest()}, expected 0000"):
        await load(f"{address(store)}/m.onnx", "0" * 64)
    assert len(store.paths) == 2


async def test_a_model_beyond_the_bound_is_not_downloaded_to_its_end(store: Store, tmp_path: Path) -> None:
    config = settings(LEARNLOOP_MODEL_URI=f"{address(store)}/m", LEARNLOOP_MODEL_SHA256="0" * 64)
    with pytest.raises(ModelError, match="larger than 10 bytes"):
        await fetch(config, tmp_path / "copy", 10)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"input_name": "obs"}, "inputs"),
        ({"input_type": TensorProto.DOUBLE}, "tensor\\(double\\), expected tensor\\(float\\)"),
        ({"with_action": False}, "'action'.* missing"),
        ({"batch": 1}, "batch dimension is fixed at 1"),
        ({"metadata": {"learnloop.actions": "7"}}, "contradicts"),
        ({"weights": [[float("nan")] * 2] * 4}, "does not run on zeros"),
    ],
)
async def test_a_model_that_breaks_the_contract_is_refused_in_one_sentence(tmp_path, changes, says):
    path = tmp_path / "m.onnx"
    digest = write_policy(path, **changes)
    with pytest.raises(ModelError, match=says) as refused:
        await load(path.as_uri(), digest)
    assert "\n" not in str(refused.value)


async def test_a_file_that_is_no_onnx_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match="not a loadable ONNX model"):
        await load(path.as_uri(), hashlib.sha256(b"no model").hexdigest())
    with pytest.raises(ModelError, match="No such file"):
        await load((tmp_path / "none").as_uri(), "0" * 64)


async def test_schemes_without_support_and_models_without_digest_are_refused() -> None:
    with pytest.raises(ModelError, match="s3:// is not supported"):
        await load("s3://bucket/key", "0" * 64)
    with pytest.raises(ModelError, match="needs its digest"):
        await load("https://example.com/m", "")


def test_the_uniform_policy_is_built_in() -> None:
    policy = parse_uniform("uniform://discrete/3?observations=4")
    result = policy.run(np.zeros((2, 4), dtype=np.float32))
    assert (policy.observations, result["action"].tolist(), result["logits"].shape) == (4, [0, 0], (2, 3))
    assert parse_uniform("uniform://discrete/3").observations is None
    for uri in (
        "uniform://continuous/1..-1",
        "uniform://discrete/0",
        "uniform://box/3",
        "uniform://discrete/3?x=1",
        "uniform://discrete/a",
    ):
        with pytest.raises(ModelError, match="write uniform://"):
            parse_uniform(uri)


@pytest.mark.parametrize("uri", ["uniform://continuous/-2..2,0..8?observations=3", "uniform://hybrid/3/-2..2,0..8"])
def test_a_uniform_policy_of_numbers_draws_within_its_bounds_and_says_the_density(uri: str) -> None:
    policy = parse_uniform(uri)
    choices = 3 if "hybrid" in uri else 0
    observations = np.zeros((4000, 3), dtype=np.float32)
    drawn = choose(policy, observations, random.Random(0).random)
    numbers = np.asarray([one.action for one in drawn])[:, -2:]
    assert policy.actions == 2 + bool(choices)
    assert numbers.min(axis=0) == pytest.approx([-2.0, 0.0], abs=0.05)
    assert numbers.max(axis=0) == pytest.approx([2.0, 8.0], abs=0.05)
    assert numbers.mean(axis=0) == pytest.approx([0.0, 4.0], abs=0.15)
    density = -math.log(4.0) - math.log(8.0) - (math.log(3.0) if choices else 0.0)
    assert all(one.drawn and one.log_prob == pytest.approx(density) for one in drawn)
    if choices:
        counts = np.bincount([int(one.action[0]) for one in drawn])
        assert counts / 4000 == pytest.approx(np.full(3, 1 / 3), abs=0.03)
    greedy = choose(policy, observations[:1], random.Random(0).random, explore=False)[0]
    assert greedy.action == [*([0.0] if choices else []), 0.0, 4.0]


@pytest.mark.parametrize("location", ["weights", "deep/../weights", "../weights", "/{folder}/weights", "link"])
def test_a_policy_reads_no_file_beside_it_or_below_where_it_runs(location, tmp_path, monkeypatch):
    """ONNX lets a model name files that hold its weights: its answers would tell what is in them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    for folder in (tmp_path, tmp_path.parent):
        (folder / "weights").write_bytes(np.ones((4, 2), np.float32).tobytes())
    (tmp_path / "link").symlink_to(tmp_path / "weights")
    write_policy(tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    (outside,) = model.graph.initializer
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value=location.format(folder=str(tmp_path).lstrip("/")))
    body = model.SerializeToString()
    (tmp_path / "policy.onnx").write_bytes(body)
    for source in (body, tmp_path / "policy.onnx"):
        with pytest.raises(ModelError, match="not a loadable ONNX model"):
            OnnxPolicy(source)
