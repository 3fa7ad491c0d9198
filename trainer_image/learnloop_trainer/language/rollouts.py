"""Conversations with a world, many at a time, as episodes to learn from or returns to judge by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from learnloop_environments.conversations.base import Conversation, ConversationWorld
from learnloop_environments.conversations.make import WORLDS
from learnloop_environments.guarded import Watchdog
from learnloop_environments.randomness import Purpose, Split, uniforms
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.rows import Episode, Sampled, rows_of
from learnloop_trainer.language.sampler import Limits, Uniforms

T = TypeVar("T")


class Speaker(Protocol):
    """What draws turns: the model in this process, or a server."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], uniforms: Callable[[int], Uniforms], limits: Limits
    ) -> list[Sampled | None]:
        """See sampler.Sampler."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One conversation to hold: the number of its task, and its own number, by which its tokens are drawn."""

    task: int
    number: int


@dataclass(slots=True)
class _Held:
    draw: Draw
    conversation: Conversation
    prompt: list[int]
    turns: list[Sampled]
    truncated: bool = False
    open: bool = True


class Rollouts:
    """A world and the chat that leads to it."""

    def __init__(self, name: str, world: ConversationWorld, chat: Chat, seed: int, batch: int) -> None:
        """`batch`: conversations that speak at the same time. What a foreign world raises ends the run, by name."""
        self._world, self._chat, self._seed, self._batch = world, chat, seed, batch
        self._run: Callable[[str, Callable[[], Any]], Any] = _plainly if name in WORLDS else Watchdog(name).run

    def play(self, draws: Sequence[Draw], split: Split, speak: Speaker, limits: Limits, occasion: int) -> list[Episode]:
        """Hold these conversations; `occasion` with a draw's number decides its tokens. Groups are tasks."""
        found: list[Episode] = []
        for begin in range(0, len(draws), self._batch):
            held = [self._begun(draw, split) for draw in draws[begin : begin + self._batch]]
            turn = 0
            while speaking := [item for item in held if item.open]:
                self._turn(speaking, speak, limits, (occasion, turn))
                turn += 1
            found += [self._episode(item) for item in held]
        return found

    def _begun(self, draw: Draw, split: Split) -> _Held:
        conversation = self._run("begin", lambda: self._world.begin(split, self._seed, draw.task))
        return _Held(draw, conversation, self._chat.opening(conversation.opening), [])

    def _turn(self, speaking: Sequence[_Held], speak: Speaker, limits: Limits, when: tuple[int, int]) -> None:
        numbers = np.asarray([item.draw.number for item in speaking], dtype=np.uint64)

        def drawn(place: int) -> Uniforms:
            return uniforms(Purpose.ACTION, self._seed, when[0], when[1], place, numbers)

        for item, turn in zip(speaking, speak([item.prompt for item in speaking], drawn, limits), strict=True):
            if turn is None:  # no room left in the context
                item.truncated, item.open = True, False
                continue
            item.turns.append(turn)
            if not turn.complete:
                item.truncated, item.open = True, False
                continue
            conversation, message = item.conversation, self._chat.message(turn.sampled_ids)
            said = self._run("reply", lambda c=conversation, m=message: c.reply(m))  # type: ignore[misc]
            item.open = not conversation.done
            if item.open:
                item.prompt = [*turn.prompt_ids, *turn.sampled_ids, *self._chat.continuation(said)]

    @staticmethod
    def _episode(item: _Held) -> Episode:
        rows, broken = rows_of(item.turns)
        conversation = item.conversation
        success = bool(conversation.success) if conversation.done and conversation.success is not None else None
        values = {"turns": float(len(item.turns))}
        reward = float(conversation.reward)
        return Episode(rows, reward, item.draw.task, success, item.truncated, broken, values=values)


def _plainly(what: str, action: Callable[[], T]) -> T:
    del what
    return action()
