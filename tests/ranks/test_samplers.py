"""A learner and its samplers as processes: one that is lost costs its unsent steps, a learner that is lost resumes."""

import json
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.wire.training import Heartbeat, Manifest
from testing.servers.ports import held_port

Launch = Callable[..., Any]
Small = Callable[..., dict[str, Any]]
LONG = 64 * 2000
"""Steps: some ten seconds on a quiet machine, so that a process can be killed meanwhile."""


class Company:
    """A learner and as many samplers as are asked for."""

    def __init__(self, launch: Launch, order: dict[str, Any], store: Path, key: Path, port: int) -> None:
        self._launch, self.order, self.run = launch, order, store / "runs/small-1"
        self._environ = {"LEARNLOOP_STORE": f"file://{store}", "LEARNLOOP_SAMPLERS_KEY_FILE": str(key)}
        self._port = str(port)

    def learner(self) -> Any:
        return self._launch(self.order, LEARNLOOP_SAMPLERS_PORT=self._port, **self._environ)

    def sampler(self, number: int) -> Any:
        """Its own termination message: RANK tells the files apart."""
        where = f"127.0.0.1:{self._port}"
        return self._launch(
            self.order, LEARNLOOP_LEARNER=where, RANK=str(10 + number), WORLD_SIZE="99", **self._environ
        )

    def beat(self) -> Heartbeat:
        return Heartbeat.model_validate_json((self.run / "heartbeat.json").read_text())

    def manifest(self) -> Manifest:
        return Manifest.model_validate_json((self.run / "manifest.json").read_text())

    def steps(self) -> int:
        return self.beat().step if (self.run / "heartbeat.json").exists() else 0


@pytest.fixture
def company(launch: Launch, small: Small, tmp_path: Path) -> Iterator[Callable[..., Company]]:
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    with held_port() as port:
        yield lambda *args, limits=None, **changes: Company(
            launch,
            small(*args, samplers={"count": 2, "environments": 4, **(limits or {})}, **changes),
            tmp_path / "s",
            key,
            port,
        )


def test_a_sampler_that_is_killed_costs_its_unsent_steps_and_a_new_one_takes_its_place(
    company: Callable[..., Company],
) -> None:
    made = company(steps=LONG)
    learner, first, second = made.learner(), made.sampler(0), made.sampler(1)
    learner.wait_until(lambda: made.steps() > 0 and made.beat().figures["samplers"] == 2)
    second.process.kill()
    learner.wait_until(lambda: made.beat().figures["samplers"] == 1)
    then = made.steps()
    learner.wait_until(lambda: made.steps() > then)
    third = made.sampler(2)
    third.wait_for("playing 4 environments for the learner")
    assert learner.ended()[0] == 0, learner.output()
    assert first.ended()[0] == 0, first.output()
    assert third.ended()[0] == 0, third.output()
    manifest = made.manifest()
    assert manifest.step >= LONG
    assert manifest.sampling is not None
    assert manifest.sampling.most_samplers == 2
    assert manifest.sampling.refused_fragments == 0
    assert not manifest.sampling.reproducible
    assert manifest.evaluation.mean > manifest.baseline.mean


def test_a_sampler_that_stands_still_stops_no_learner(
    company: Callable[..., Company],
) -> None:
    made = company(steps=LONG, limits={"maxStaleness": 0})
    learner, first, second = made.learner(), made.sampler(0), made.sampler(1)
    learner.wait_until(lambda: made.steps() > 0 and made.beat().figures["samplers"] == 2)
    os.kill(second.process.pid, signal.SIGSTOP)
    try:
        then = made.steps()
        learner.wait_until(lambda: made.steps() > then + 2000)
    finally:
        os.kill(second.process.pid, signal.SIGCONT)
    assert learner.ended()[0] == 0, learner.output()
    assert first.ended()[0] == 0, first.output()
    assert second.ended()[0] == 0, second.output()


def test_a_learner_that_is_killed_goes_on_from_its_checkpoint_with_the_same_samplers(
    company: Callable[..., Company],
) -> None:
    made = company(steps=LONG, checkpoint={"everySeconds": 1})
    learner, sampler = made.learner(), made.sampler(0)
    learner.wait_until(lambda: (made.run / "checkpoint.json").exists())
    learner.process.kill()
    learner.ended()
    (saved,) = json.loads((made.run / "checkpoint.json").read_text())[:1]
    again = made.learner()
    again.wait_for(f"resuming at step {saved['step']}")
    assert again.ended()[0] == 0, again.output()
    assert sampler.ended()[0] == 0, sampler.output()
    assert sampler.output().count("playing 4 environments for the learner") == 2


@pytest.mark.parametrize("algorithm", ["dqn"])
def test_learners_with_a_replay_buffer_take_up_what_samplers_send(
    company: Callable[..., Company], algorithm: str
) -> None:
    made = company(algorithm, steps=3200)
    learner, sampler = made.learner(), made.sampler(0)
    assert learner.ended()[0] == 0, learner.output()
    assert sampler.ended()[0] == 0, sampler.output()
    assert made.manifest().step == 3200
    assert made.manifest().sampling is not None


def test_a_learner_without_a_key_says_what_is_missing(launch: Launch, small: Small) -> None:
    learner = launch(small(samplers={"count": 1}))
    assert learner.ended()[0] == 2
    assert "LEARNLOOP_SAMPLERS_KEY_FILE" in learner.output()


def test_a_sampler_of_another_recipe_is_refused_and_says_why(company: Callable[..., Company]) -> None:
    made = company(steps=64 * 100_000)
    learner = made.learner()
    learner.wait_for("played by samplers")
    made.order["spec"]["seed"] = 7
    code, said = made.sampler(0).ended()
    assert code == 203
    assert "the learner refused this sampler: the sampler's recipe is" in said
    assert learner.process.is_alive()
