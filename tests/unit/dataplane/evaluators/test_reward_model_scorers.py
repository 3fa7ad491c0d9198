"""Reward models of tenants: each scores in a process of its own, bounded, and what cannot be used is said."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock

import numpy as np
import onnx
import orjson
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_common.acting.reward_model import NoRewardModel, RewardModel, probability
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.evaluators import scorers as scorers_module
from learnloop_dataplane.evaluators.all_evaluators import score
from learnloop_dataplane.evaluators.evaluator import Case, Tools
from learnloop_dataplane.evaluators.scorers import NoScore, NoScoreYet, Scorers, needed
from learnloop_dataplane.registry.artifacts import Content

WORDS = {"[?]": 0, "Q": 1, "A": 2, "good": 3, "bad": 4, ".": 5}
WORTH = np.array([0, 0, 0, 2.0, -2.0, 0], dtype=np.float32)
DIGEST, OTHER = "a" * 64, "b" * 64


def reward_model(**changes: str) -> bytes:
    """The sum of what each word is worth: a whole reward model of six numbers."""
    table = numpy_helper.from_array(WORTH, "table")
    axes = numpy_helper.from_array(np.array([1], dtype=np.int64), "axes")
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["worth"]),
        helper.make_node("ReduceSum", ["worth", "axes"], ["score"], keepdims=0),
    ]
    given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])
    output = helper.make_tensor_value_info("score", TensorProto.FLOAT, [1])
    graph = helper.make_graph(nodes, "worth", [given], [output], [table, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    tokeniser = Tokenizer(models.WordLevel(WORDS, unk_token="[?]"))
    tokeniser.pre_tokenizer = pre_tokenizers.Whitespace()
    facts = {
        "learnloop.kind": "reward-model",
        "learnloop.tokeniser": tokeniser.to_str(),
        "learnloop.framing": json.dumps(["Q ", " A ", " ."]),
        "learnloop.centre": "0.5",
        "learnloop.context_length": "12",
    }
    helper.set_model_props(model, facts | changes)
    body: bytes = model.SerializeToString()
    return body


SECRET = b"SECRET-KEY"


def reader_of(location: str) -> bytes:
    """A reward model whose score is the fourth byte of a file: its weights lie there, says its initialiser."""
    model = onnx.load_from_string(reward_model(**{"learnloop.centre": "0"}))
    outside = TensorProto(name="outside", data_type=TensorProto.UINT8, dims=[len(SECRET)])
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(len(SECRET)))):
        outside.external_data.add(key=key, value=value)
    place = numpy_helper.from_array(np.array([3], dtype=np.int64), "place")
    nodes = [
        helper.make_node("Gather", ["outside", "place"], ["byte"]),
        helper.make_node("Cast", ["byte"], ["score"], to=TensorProto.FLOAT),
    ]
    del model.graph.node[:]
    del model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([outside, place])
    body: bytes = model.SerializeToString()
    return body


class Store:
    """Artifacts of namespaces, and how often they were fetched."""

    def __init__(self) -> None:
        self.artifacts = {("here", DIGEST): reward_model(), ("there", OTHER): reward_model(**{"learnloop.centre": "0"})}
        self.fetched = 0

    async def fetch(self, namespace: str, sha256: str, most: int) -> Content:
        self.fetched += 1
        body = self.artifacts.get((namespace, sha256))
        if body is None:
            raise ApiError(404, "this namespace has no such artifact; check the URI or upload it")
        if len(body) > most:
            raise ApiError(413, f"it has {len(body)} bytes, and {most} is the most that is read here")

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 300):
                yield body[start : start + 300]

        return Content(sha256, len(body), chunks())


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def scorers(store: Store) -> AsyncIterator[Scorers]:
    made = Scorers(store.fetch)
    yield made
    await made.close()


async def test_an_answer_is_scored_by_a_process_of_its_own_that_stays(scorers: Scorers, store: Store) -> None:
    good = await scorers.score("here", DIGEST, "good bad", "good good")
    assert good == pytest.approx(probability(4 - 0.5))
    bad = await scorers.score("here", DIGEST, "good bad", "bad")
    assert bad == pytest.approx(probability(-2 - 0.5))
    assert store.fetched == 1
    assert RewardModel(reward_model()).score("good bad", "bad") == bad, "in this process it is the same"


async def test_a_namespace_sees_its_own_reward_models_alone(scorers: Scorers) -> None:
    await scorers.score("there", OTHER, "q", "good")
    with pytest.raises(NoScoreYet, match="no such artifact"):
        await scorers.score("here", OTHER, "q", "good")


async def test_what_is_no_reward_model_is_refused_and_not_fetched_again(scorers: Scorers, store: Store) -> None:
    store.artifacts["here", OTHER] = b"\x00" * 1000
    store.artifacts["here", "c" * 64] = reward_model(**{"learnloop.kind": "adapter"})
    for digest, reason in ((OTHER, "not an ONNX file"), ("c" * 64, "adapter")):
        for _ in range(2):
            with pytest.raises(NoScore, match=reason):
                await scorers.score("here", digest, "q", "good")
    assert store.fetched == 2


@pytest.mark.parametrize("how", ["from the root", "from where it runs", "without the limit on open files"])
async def test_a_model_that_names_a_file_as_its_weights_reads_nothing(scorers, store, tmp_path, monkeypatch, how):
    planted = tmp_path / "secret"
    planted.write_bytes(SECRET)
    relative = str(planted).lstrip("/")
    onnxruntime = pytest.importorskip("onnxruntime")
    # The same file is read where nothing keeps it from that: the model of this test is a whole attack.
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/")
    session = onnxruntime.InferenceSession(reader_of(relative), options)
    [stolen] = session.run(["score"], {"input_ids": np.zeros((1, 1), dtype=np.int64)})
    assert bytes([int(stolen[0])]) == SECRET[3:4]
    if how == "without the limit on open files":
        monkeypatch.chdir(tmp_path)
        for location in ("secret", str(planted), "../" * 20 + relative):
            with pytest.raises(NoRewardModel):
                RewardModel(reader_of(location)).raw([1])
        return
    folder = "/" if how == "from the root" else str(tmp_path)
    shown = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "learnloop_dataplane.evaluators.scorer_process",
        str(2**28),
        stdin=PIPE,
        stdout=PIPE,
        cwd=folder,
    )
    body = reader_of(relative if folder == "/" else "secret")
    stdout, _ = await shown.communicate(len(body).to_bytes(8, "big") + body)
    assert orjson.loads(stdout)["refused"].startswith("it is not an ONNX file"), "wherever the process was started"
    store.artifacts["here", OTHER] = body
    with pytest.raises(NoScore, match="not an ONNX file"):
        await scorers.score("here", OTHER, "q", "good")
    store.artifacts["here", "c" * 64] = reader_of("/proc/self/environ")
    with pytest.raises(NoScore, match="not an ONNX file"):
        await scorers.score("here", "c" * 64, "q", "good")


async def test_a_slow_moment_leaves_the_score_pending_and_no_score_for_ever(scorers, monkeypatch):
    tools = Tools(scorer=partial(scorers.score, "here"))
    await score(spec(), Case(task="q", output="good"), tools)
    with monkeypatch.context() as slow:
        slow.setattr(scorers_module, "SCORE_SECONDS", 0.0)
        with pytest.raises(Unavailable):
            await score(spec(), Case(task="q", output="good"), tools)
    # The next question goes through immediately: what the model fails on holds up no other episode.
    assert (await score(spec(), Case(task="q", output="good"), tools)).value
    process_of(scorers).send_signal(signal.SIGSTOP)
    died = asyncio.create_task(score(spec(), Case(task="q", output="good"), tools))
    await asyncio.sleep(0.05)
    process_of(scorers).kill()
    with pytest.raises(Unavailable, match="its process ended"):
        await died
    assert (await score(spec(), Case(task="q", output="good"), tools)).value


async def test_too_long_an_answer_is_refused_and_the_next_one_is_scored(scorers: Scorers, store: Store) -> None:
    with pytest.raises(NoScore, match="the model reads 12"):
        await scorers.score("here", DIGEST, "q", "good " * 50)
    assert 0 < await scorers.score("here", DIGEST, "q", "good") < 1
    assert store.fetched == 1


async def test_a_model_that_does_not_answer_in_time_is_killed(scorers, monkeypatch):
    await scorers.score("here", DIGEST, "q", "good")
    process = process_of(scorers)
    monkeypatch.setattr(scorers_module, "SCORE_SECONDS", 0.0)
    with pytest.raises(NoScoreYet, match="no answer within 0 s"):
        await scorers.score("here", DIGEST, "q", "good")
    assert process.returncode is not None
    assert not scorers._alive, "and its place is free"


async def test_no_more_models_are_loaded_than_fit(store: Store) -> None:
    one = needed(len(reward_model()))
    scorers = Scorers(store.fetch, lambda: 2 * one - 1000)
    await scorers.score("here", DIGEST, "q", "good")
    first = process_of(scorers)
    await scorers.score("there", OTHER, "q", "good")
    assert list(scorers._alive) == [("there", OTHER)]
    assert first.returncode is not None
    store.artifacts["third", DIGEST] = reward_model(padding="x" * (one // 3))
    for _ in range(2):
        with pytest.raises(NoScoreYet, match=r"raise dataPlane\.resources\.limits\.memory"):
            await scorers.score("third", DIGEST, "q", "good")
    assert list(scorers._alive) == [("there", OTHER)], "one that never fits ends no process of another namespace"
    assert store.fetched == 3, "and it is not fetched for each question"
    await scorers.close()


async def test_without_a_process_the_score_is_pending(scorers: Scorers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers_module, "started_apart", AsyncMock(side_effect=OSError(11, "no process is left")))
    with pytest.raises(NoScoreYet, match="no process can be started"):
        await scorers.score("here", DIGEST, "q", "good")
    assert not scorers._alive


async def test_a_model_larger_than_any_may_be_is_refused(scorers: Scorers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers_module, "MOST_BYTES", 10)
    with pytest.raises(NoScore, match="10 is the most"):
        await scorers.score("here", DIGEST, "q", "good")


def hungry() -> bytes:
    """A reward model that asks for 200 MB for each token."""
    model = onnx.load_from_string(reward_model())
    large = numpy_helper.from_array(np.array([1, 50_000_000], dtype=np.int64), "large")
    flat = numpy_helper.from_array(np.array([1], dtype=np.int64), "flat")
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Mul", ["shape", "large"], ["wanted"]),
        helper.make_node("ConstantOfShape", ["wanted"], ["zeros"]),
        helper.make_node("ReduceMax", ["zeros"], ["most"], keepdims=0),
        helper.make_node("Reshape", ["most", "flat"], ["score"]),
    ]
    del model.graph.node[:]
    del model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([large, flat])
    body: bytes = model.SerializeToString()
    return body


async def test_a_model_that_asks_for_too_much_memory_is_refused_it(scorers: Scorers, store: Store) -> None:
    store.artifacts["here", DIGEST] = hungry()
    with pytest.raises(NoScore, match=r"more than the 160 MiB of memory"):
        await scorers.score("here", DIGEST, "q", "good")
    status = Path(f"/proc/{process_of(scorers).pid}/status").read_text()
    [peak] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    assert peak < 300 * 1024, "KiB, with what it shares"
    assert 0 < await scorers.score("there", OTHER, "q", "good") < 1


def saying(kind: int, shape: list[int]) -> bytes:
    """A reward model whose score has this type and shape, and no number in it."""
    model = onnx.load_from_string(reward_model())
    empty = helper.make_tensor("nothing", kind, shape, [b"much"] * int(np.prod(shape)))
    del model.graph.node[:]
    del model.graph.initializer[:]
    model.graph.initializer.extend([empty])
    model.graph.node.extend([helper.make_node("Identity", ["nothing"], ["score"])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("score", kind, shape))
    body: bytes = model.SerializeToString()
    return body


# Written with the id 0: the library writes an id of 2**31 only after it has counted all that are missing below it.
BROKEN_TOKENISER = json.loads(Tokenizer(models.WordLevel({"Q": 0}, unk_token="[?]")).to_str())
BROKEN_TOKENISER["model"]["vocab"]["Q"] = 2**31 - 1


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (saying(TensorProto.FLOAT, [0]), "its score is not a number"),
        (saying(TensorProto.STRING, [1]), "its score is not a number"),
        (reward_model(**{"learnloop.centre": "nan"}), "centre"),
        (reward_model(**{"learnloop.centre": "1e999"}), "centre"),
        (reward_model(**{"learnloop.context_length": "0"}), "context length"),
        (reward_model(**{"learnloop.tokeniser": json.dumps(BROKEN_TOKENISER)}), "its tokeniser"),
    ],
    ids=["no score", "a word", "no centre", "an endless centre", "no context", "no unknown word"],
)
def test_a_model_that_can_never_score_says_so_in_a_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(NoRewardModel, match=sentence):
        RewardModel(body).score("q", "good")


async def test_after_a_question_that_was_cancelled_each_answer_gets_its_own_score(scorers: Scorers) -> None:
    good = await scorers.score("here", DIGEST, "q", "good")
    process = process_of(scorers)
    process.send_signal(signal.SIGSTOP)
    cancelled = asyncio.create_task(scorers.score("here", DIGEST, "q", "bad"))
    await asyncio.sleep(0.05)
    assert process_of(scorers) is process
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert process.returncode == -signal.SIGKILL
    assert await scorers.score("here", DIGEST, "q", "good") == good
    assert await scorers.score("here", DIGEST, "q", "bad") < 0.5


async def test_a_model_that_hangs_holds_up_its_own_namespace_alone(scorers, store, monkeypatch):
    await scorers.score("here", DIGEST, "q", "good")
    process = process_of(scorers)
    process.send_signal(signal.SIGSTOP)
    hung = asyncio.create_task(scorers.score("here", DIGEST, "q", "good"))
    async with asyncio.timeout(30):
        assert 0 < await scorers.score("there", OTHER, "q", "good") < 1
    assert not hung.done()
    monkeypatch.setattr(scorers_module, "AT_ONCE", 2)
    store.artifacts["third", DIGEST] = reward_model()
    assert 0 < await scorers.score("third", DIGEST, "q", "good") < 1, "an idle process makes way, the busy one stays"
    assert set(scorers._alive) == {("here", DIGEST), ("third", DIGEST)}
    process.send_signal(signal.SIGCONT)
    assert 0 < await hung < 1


def process_of(scorers: Scorers) -> asyncio.subprocess.Process:
    [scorer] = [one for (namespace, _), one in scorers._alive.items() if namespace == "here"]
    return scorer.process


def spec() -> Evaluator:
    return Evaluator.model_validate({"type": "reward-model", "rewardModel": {"sha256": DIGEST}})


async def test_the_evaluator_reads_the_task_as_question_and_the_output_as_answer(scorers: Scorers) -> None:
    async def scorer(sha256: str, question: str, answer: str) -> float:
        return await scorers.score("here", sha256, question, answer)

    tools = Tools(scorer=scorer)
    result = await score(spec(), Case(task="good bad", output="good"), tools)
    assert result.value == pytest.approx(probability(2 - 0.5))
    nothing = await score(spec(), Case(task="", output="good"), tools)
    assert (nothing.value, "no task" in nothing.note) == (None, True)
    without = await score(spec(), Case(task="q", output="good"), Tools())
    assert without.value is None
