"""A sampler's whole life: find the learner, play with its newest policy, send what was seen, until it needs no more.

A sampler keeps nothing. One that is killed costs the steps that it had not sent; one whose learner goes away looks for
it again, and begins new episodes.
"""

import os
import random
import time
from collections.abc import Mapping

from learnloop_api import names
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_environments import own_code
from learnloop_environments.errors import ConfigError, TrainerError
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.sampling.connection import ConnectionLost, Link, NoMoreSteps
from learnloop_trainer.sampling.intake import RefusedFragment
from learnloop_trainer.sampling.learners import shape_of
from learnloop_trainer.sampling.players import PLAYERS, Table
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.sampling_service import identity, read_key
from learnloop_trainer.training_run.session import training_world

LONGEST_PAUSE = 10.0
PATIENCE = 600.0
"""Seconds that a sampler looks for its learner."""


def run(order: Order, environ: Mapping[str, str] = os.environ) -> None:
    """Return when the learner needs no more steps; raises TrainerError for every other end."""
    own_code.use(environ)
    if order.spec.samplers is None or order.spec.algorithm not in PLAYERS:
        fix = "set it, or start this process as a rank"
        raise ConfigError("spec.samplers", order.spec.algorithm, "does not make this process a sampler", fix)
    host, port = _address(environ)
    key, identification = read_key(environ), identity(order)
    last_contact, tries = time.monotonic(), 0
    while True:
        try:
            link = Link(host, port, key, identification)
            tries = 0
            try:
                _play(order, link)
            finally:
                link.close()
                last_contact = time.monotonic()
        except NoMoreSteps:
            say("the learner needs no more steps")
            return
        except RefusedFragment as error:
            raise TrainerError(f"the learner refused this sampler: {error}") from None
        except ConnectionLost as error:
            if time.monotonic() - last_contact > PATIENCE:
                raise TrainerError(f"the learner at {host}:{port} cannot be reached: {error}") from None
            pause = min(LONGEST_PAUSE, 0.2 * 2 ** min(tries, 10)) * random.uniform(0.5, 1.0)
            tries += 1
            say(f"no learner at {host}:{port} ({error}); looking again in {pause:.1f} s")
            time.sleep(pause)


def _play(order: Order, link: Link) -> None:
    """Play a fragment, send it, and begin the next when the learner says so, by its newest policy.

    Nothing is played while a fragment travels: a step by a policy that is a version older costs more than the moment.
    """
    assert order.spec.samplers is not None
    members = range(link.first, link.first + order.spec.samplers.environments)
    rewards = RewardPolicySpec.model_validate_json(link.rewards) if link.rewards else None
    environment = training_world(order, members, rewards)
    try:
        shape, policy = shape_of(order, environment), link.policy
        table = Table(environment, PLAYERS[order.spec.algorithm](order, environment), shape)
        say(f"playing {len(members)} environments for the learner, from version {policy.version} of its policy")
        while True:
            policy = link.exchange(table.play(policy))
    finally:
        environment.close()


def _address(environ: Mapping[str, str]) -> tuple[str, int]:
    text = environ.get(names.ENV_LEARNER, "")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(names.ENV_LEARNER, text, "is not host:port", "name the learner's address")
    return host.strip("[]"), int(port)
