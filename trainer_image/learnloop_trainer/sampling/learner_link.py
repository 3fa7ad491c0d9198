"""A sampler's side of the connection."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from learnloop_trainer.sampling.fragment import RefusedFragment, Steps
from learnloop_trainer.sampling.frames import MOST_POLICY, Channel, Closed, Message, ProtocolError, greet
from learnloop_trainer.sampling.intake import SamplerPolicy

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 300.0  # of a learner in the middle of a long update


class Over(Exception):
    """The learner needs no more steps."""


@dataclass(slots=True)
class Link:
    """One connection with the learner. Its methods raise Closed, ProtocolError, Refused or Over."""

    channel: Channel
    connection: socket.socket
    policy: SamplerPolicy
    first: int  # number of this sampler's first environment
    rewards: str  # the spec of the RewardPolicy as JSON; "" without one

    def exchange(self, steps: Steps, version: int) -> SamplerPolicy:
        """Send a fragment that this version took; returns the newest policy once another fragment may begin."""
        arrays = steps.arrays()
        while True:
            known = self.policy.version
            self.channel.send(arrays, {"version": str(version), "known": str(known)})
            answer = self.channel.receive(MOST_POLICY, ANSWER_SECONDS)
            if "wait" in answer.words:
                arrays = {}  # the learner has it; enough is under way
            elif "again" not in answer.words:
                break
        if answer.arrays:
            self.policy = _policy(answer)
        else:
            _heed(answer)
        return self.policy

    def close(self) -> None:
        """What was not sent is lost."""
        self.connection.close()


def connect(host: str, port: int, key: bytes, words: Mapping[str, str]) -> Link:
    """Raises as Link's methods do."""
    try:
        connection = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
    except OSError as error:
        raise Closed(str(error) or type(error).__name__) from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = greet(connection, key, words)
        answer = channel.receive(MOST_POLICY, ANSWER_SECONDS)
        _heed(answer)
        return Link(channel, connection, _policy(answer), _whole(answer, "first"), answer.words.get("rewards", ""))
    except BaseException:
        connection.close()
        raise


def _heed(answer: Message) -> None:
    if "refused" in answer.words:
        raise RefusedFragment(answer.words["refused"])
    if "over" in answer.words:
        raise Over


def _policy(answer: Message) -> SamplerPolicy:
    return SamplerPolicy(_whole(answer, "version"), _whole(answer, "step"), answer.arrays)


def _whole(answer: Message, name: str) -> int:
    try:
        return int(answer.words[name])
    except (KeyError, ValueError):
        raise ProtocolError(f"the learner's answer has no {name}") from None
