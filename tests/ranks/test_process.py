"""A real process: SIGTERM, exit codes."""

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

STEPS = 64 * 800  # a few seconds
GRACE_SECONDS = 30.0  # what Kubernetes gives a pod between SIGTERM and SIGKILL; 0.1 s are usual
Launch = Callable[..., Any]


def test_sigterm_saves_a_checkpoint_exits_143_and_a_restart_finishes_the_run_once(launch, small, tmp_path):
    order = small(steps=STEPS, checkpoint={"everySeconds": 3600})
    first = launch(order)
    first.wait_for("training")
    time.sleep(0.1)
    signalled = time.time()
    os.kill(first.process.pid, signal.SIGTERM)
    code, _ = first.ended()
    assert code == 143
    assert (tmp_path / "store/runs/small-1/checkpoint.json").stat().st_mtime - signalled < GRACE_SECONDS
    assert (tmp_path / "termination-0").read_text() == "SIGTERM: checkpoint saved\n"
    pointer, *_ = json.loads((tmp_path / "store/runs/small-1/checkpoint.json").read_text())
    code, output = launch(order).ended()
    assert code == 0, output
    assert f"resuming at step {pointer['step']}" in output
    code, output = launch(order).ended()
    assert (code, output) == (0, "this run's proof is already durable: nothing to do\n")
    code, output = launch(order | {"attempt": 3}).ended()
    assert (code, output) == (0, "this run's proof is already durable: nothing to do\n")
    proof = json.loads((tmp_path / "store/runs/small-1/proof.json").read_text())
    assert proof["attempts"] == 4, "the operator takes no proof of an attempt that failed"


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("{}", "job: '' is missing"),
        (
            '{"job":"j","spec":{"algorithm":"ppo","totalSteps":9,"data":{"environment":"Nope-v0"}}}',
            "spec.data.environment: 'Nope-v0' is unknown",
        ),
    ],
)
def test_a_configuration_error_exits_2_with_one_sentence_in_the_termination_log(launch, tmp_path, order, words):
    code, output = launch(order).ended()
    assert code == 2, output
    sentence = (tmp_path / "termination-0").read_text()
    assert sentence.startswith(words)
    assert sentence.count("\n") == 1
