"""Programs of others train: learnloop gives the order, keeps checkpoints, and proves what is handed in."""

import os
import time
from pathlib import Path

import pytest
import torch

from learnloop_api.wire.engine import EngineOrder
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer.distributed import Alone
from learnloop_trainer.engines import check, sb3
from learnloop_trainer.engines.engine_process import Container, EngineFailed, EngineMistaken, Exchange
from learnloop_trainer.engines.sb3_spaces import form_of
from learnloop_trainer.errors import ExportError
from learnloop_trainer.store.run_store import DirectoryStore, unpack
from learnloop_trainer.training_run import policy_training
from testing.training.engines import in_a_pod, program, trained


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("LEARNLOOP_ENGINE_DIRECTORY", "")


def test_the_program_of_the_guide_is_short_and_its_policy_is_proven_in_a_pod_of_two_containers(tmp_path: Path) -> None:
    engine = in_a_pod(tmp_path, program(tmp_path))
    proof = trained(tmp_path, None, steps=12_000)
    assert engine.wait(30) == 0
    assert (proof.engine, proof.algorithm) == ("image", "custom")
    assert proof.difference is not None and proof.difference.low > 50, "it has learned"  # noqa: PT018
    assert len(Path(program(tmp_path)[1]).read_text().splitlines()) <= 60


def test_an_engine_that_fails_goes_on_from_its_checkpoint_in_the_next_attempt(tmp_path: Path) -> None:
    failing = {"weights, witness =": "raise SystemExit(3)\nweights, witness ="}
    with pytest.raises(EngineFailed, match=r"exit code 3 at step \d+; see its log"):
        trained(tmp_path, program(tmp_path, **failing))
    secret = unpack(DirectoryStore(tmp_path / "store", "own-1").checkpoint().body)[1]["held_out"]
    resumed = {"while True": f"assert step >= 300\nassert '{secret}' not in json.dumps(order)\nwhile True"}
    proof = trained(tmp_path, program(tmp_path, **resumed), attempt=1)
    assert (proof.attempts, str(proof.held_out.seed)) == (2, secret)
    assert int(secret) > 2**32, "of one run in a million it is smaller"


def test_an_attempt_that_has_nothing_left_to_train_hands_in_the_rest(tmp_path: Path) -> None:
    failing = {"weights, witness =": "raise SystemExit(3)\nweights, witness ="}
    with pytest.raises(EngineFailed):
        trained(tmp_path, program(tmp_path, **failing))
    idle = {"while True:": "seen = numpy.zeros((1, width))\nwhile step < order['total_steps']:"}
    assert trained(tmp_path, program(tmp_path, **idle), attempt=1).attempts == 2


def test_training_that_has_ended_is_not_repeated_for_its_proof(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="differs from the trained network"):
        trained(tmp_path, program(tmp_path, **{"(witness @ weights).tolist()": "(witness @ weights + 1).tolist()"}))
    with pytest.raises(ExportError):
        trained(tmp_path, ["no-such-program"], attempt=1)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 0", "ended without heartbeat.json, checkpoint, policy.onnx, result.json"),
        (
            "echo {} >$D/a; mv $D/a $D/heartbeat.json; sleep 9",
            r"heartbeat.json: step: '\{\}': Field required; correct it",
        ),
        (
            """for s in 9 8; do echo '{"step":' $s} >$D/a; mv $D/a $D/heartbeat.json; sleep 1; done; sleep 9""",
            "heartbeat.json: step: 8 is below the 9 before",
        ),
        ("cd $D; head -c 70000 /dev/zero >a; mv a heartbeat.json; sleep 9", "heartbeat.json: is larger than 65536"),
        ("""grep -q '"seed":0,' $D/order.json || exit 2""", "exit code 2"),
        ("ln -s /etc/hostname $D/checkpoint; sleep 9", "checkpoint: cannot be read"),
        ("env | grep -q LEARNLOOP_STORE || exit 2", "exit code 2"),
    ],
)
def test_what_breaks_the_contract_is_refused_for_good(script: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(EngineMistaken, match=sentence):
        trained(tmp_path, ["sh", "-c", script.replace("$D", "$LEARNLOOP_ENGINE_DIRECTORY")])


def test_a_policy_that_draws_by_itself_is_not_proven(tmp_path: Path) -> None:
    noisy = 'helper.make_node("RandomNormalLike", ["exact"], ["noise"], scale=1e-9)'
    noisy = f'["exact"]), {noisy}, helper.make_node("Add", ["exact", "noise"], ["logits"]),'
    with pytest.raises(EngineMistaken, match=r"policy.onnx: draws random numbers \(RandomNormalLike\); export it"):
        trained(tmp_path, program(tmp_path, **{'["logits"]),\n    helper': f"{noisy}\n    helper"}))


def test_what_no_engine_heeds_is_refused(tmp_path: Path) -> None:
    randomise = [{"parameter": "gravity", "low": 9, "high": 10}]
    for field, value in (("randomise", randomise), ("level", "gravity")):
        with pytest.raises(ConfigError, match=rf"spec.data.{field}: 'gravity' is not heeded by engine image"):
            trained(tmp_path, ["true"], data={"environment": "CartPole-v1", field: value})


def test_the_last_checkpoint_is_stored_though_one_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = DirectoryStore.put_checkpoint
    monkeypatch.setattr(DirectoryStore, "put_checkpoint", lambda *given: time.sleep(2) or put(*given))
    script = "cd $LEARNLOOP_ENGINE_DIRECTORY; for c in 1 2; do echo $c >a; mv a checkpoint; sleep 0.5; done; "
    with pytest.raises(EngineFailed):
        trained(tmp_path, ["sh", "-c", script + "head -c 9000 /dev/zero >error; exit 3"])
    saved = DirectoryStore(tmp_path / "store", "own-1").checkpoint()
    assert unpack(saved.body)[0]["checkpoint"].tobytes() == b"2\n"


def test_an_engine_cannot_keep_its_stop_from_a_trainer_that_has_a_proof(tmp_path: Path) -> None:
    (tmp_path / ".stop").mkdir()
    (tmp_path / "exit-code").mkdir()
    Container(Exchange(tmp_path)).stop()
    assert (tmp_path / "stop").exists()


def test_a_pipe_and_too_large_a_file_are_refused_and_never_waited_for(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EngineMistaken, match="pipe: is not a plain file"):
        exchange.take("pipe", 9)
    exchange.give("large", b"0123456789")
    with pytest.raises(EngineMistaken, match="large: is larger than 9 bytes"):
        exchange.take("large", 9)


def test_a_program_is_checked_without_a_cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert check.main(program(tmp_path)) == 0
    assert check.main(["true"]) == 2
    problem = "does not keep to docs/reference/engines.md: "
    assert f"{problem}the engine ended without heartbeat.json" in capfd.readouterr().err
    assert check.main(program(tmp_path, **{"saved = ": "raise SystemExit(3)\n    saved = "})) == EngineFailed.exit_code
    assert f"{problem}started again with its checkpoint as resume: the engine ended with" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("algorithm", "world", "settings", "problem"),
    [
        ("crossq", "Steered", {}, "policy: 'MultiInputPolicy' is not a policy of crossq.* images need it"),
        ("ars", "Recall", {"policy": "CnnPolicy"}, "policy: 'CnnPolicy' is not a policy of ars"),
        ("ppo", "Parts", {"policy": "CnnPolicy"}, "one image.* camera.type, keys, word; set it to MultiInputPolicy"),
        ("ppo", "Recall", {"policy": "CnnPolicy"}, "and testing.training.seen_worlds:Recall shows observation"),
        ("ppo", "Small", {}, "spec.data.environment.*shows observation as an image of 7 × 7 × 3, which CnnPolicy"),
        ("ppo", "Film", {"policy": "MultiInputPolicy"}, "image of 2 × 36 × 36 × 3.* have two or three dimensions"),
        ("maskable-ppo", "Recall", {}, "shows no action_mask of 2 numbers"),
        ("maskable-ppo", "Steered", {}, "has continuous actions, which maskable-ppo"),
        ("td3", "Recall", {}, "has discrete actions, which td3 .*set algorithm to ppo, dqn, a2c"),
    ],
)
def test_sb3_refuses_what_does_not_fit_together(algorithm: str, world: str, settings, problem: str) -> None:
    name = f"testing.training.seen_worlds:{world}"
    with pytest.raises(ConfigError, match=problem):
        form_of(name, algorithm, settings, make(name, Split.TRAINING, 0, range(1)))


def test_learners_of_rows_refuse_images(make_order) -> None:
    order = make_order("ppo", data={"environment": "testing.training.seen_worlds:Parts"})
    with pytest.raises(ConfigError, match=r"camera.*which are images; set engine to sb3"):
        policy_training.begin(order, Alone(), torch.device("cpu"))


def test_sb3_goes_on_with_its_networks_its_step_and_its_entropy(tmp_path: Path) -> None:
    space = {"environment": "Pendulum-v1", "observations": 3, "actions": 1, "low": [-2.0], "high": [2.0]}
    run = {"job": "a", "attempt": 0, "rank": 0, "world_size": 1, "seed": 1, "environment_seeds": [1], **space}
    exchange, settings = Exchange(tmp_path), {"learning_starts": 20, "normalize": True}
    order = EngineOrder.model_validate({**run, "algorithm": "sac", "total_steps": 60, "settings": settings})
    sb3.train(order, exchange)
    before, _ = unpack((tmp_path / "checkpoint").read_bytes())
    (tmp_path / "checkpoint").rename(tmp_path / "resume")
    sb3.train(order.model_copy(update={"total_steps": 61}), exchange)
    after, facts = unpack((tmp_path / "checkpoint").read_bytes())
    assert facts["step"] == "61"
    assert before["log_ent_coef"] < 0
    assert all((after[name] == value).all() for name, value in before.items() if name != "observations")
