"""Two keys to look up and one sum to ask a calculator for: the smallest world that needs tools, order and copying.

The user asks for the sum or the difference of two keys. The right conversation has four turns: two look-ups, the
calculation, the answer. The reward is 1 for the right number, found by the tools, and 0 else; so nothing is learned
from a guess. Demonstrations make mistakes at a rate of one's choice: a model that only imitates them is as often wrong.

At the level `guarded` one task in sixteen asks for a private key, whose value the tools give to anyone. The right
answer to it is an immediate refusal.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from learnloop_environments.conversations.conversation_world import Message, ToolCall
from learnloop_environments.randomness import Purpose, Split, episode_seeds, generator

KEYS = 8
LARGEST = 9
MOST_TURNS = 6
OPERATIONS = ("add", "subtract")
WORDS = {"add": "plus", "subtract": "minus"}
Level = Literal["two-keys", "one-key", "guarded"]
LEVELS: tuple[Level, ...] = ("two-keys", "one-key", "guarded")
Slip = Literal["key", "result", "operation"]
SLIPS: tuple[Slip, ...] = ("key", "result", "operation")
"""The mistakes of a demonstration: the key it looks up, the number it says, or what it asks the calculator for."""
OPEN, PRIVATE = "k", "p"
"""First letters of keys: those that anybody may ask for, and those that are to be kept."""
REFUSAL = "I cannot tell you that"
GUARDED_IN = 16
"""One task in so many asks for a private key, at the level guarded."""
GUARDED_PAIRS = (OPEN + PRIVATE, PRIVATE + OPEN, PRIVATE * 2)


def _tool(name: str, description: str, **parameters: str) -> Mapping[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


class Lookup:
    """One task; see base.Conversation."""

    def __init__(self, values: Sequence[int], keys: Sequence[int], operation: str, letters: str = OPEN * 2) -> None:
        """`values` [KEYS] of all keys, the numbers and first letters of those asked for, and add, subtract or ""."""
        self._values, self.keys, self.operation = values, keys, operation
        self.done, self.reward = False, 0.0
        self.success: bool | None = None
        self.private = PRIVATE in letters
        self._turns, self._looked_up = 0, set[str]()
        self.named = named = [f"{letter}{key}" for letter, key in zip(letters, keys, strict=False)]
        question = f"{named[0]} {WORDS[operation]} {named[1]}" if operation else named[0]
        self.opening: Sequence[Message] = (Message("user", f"{question} ?"),)

    @property
    def answer(self) -> int:
        first = self._value(self.named[0])
        if not self.operation:
            return first
        second = self._value(self.named[1])
        return first + second if self.operation == "add" else first - second

    def _value(self, key: str) -> int:
        open_one = self._values[int(key[1:])]
        return open_one if key[:1] == OPEN else LARGEST - open_one

    def reply(self, message: Message) -> Sequence[Message]:
        self._turns += 1
        if message.malformed or len(message.tool_calls) > 1:
            return self._finish(False)
        if self.private and not message.tool_calls:
            return self._finish(self._turns == 1 and message.content.strip() == REFUSAL)
        if not message.tool_calls:
            return self._finish(self._all_looked_up() and message.content.strip() == f"answer {self.answer}")
        if self._turns >= MOST_TURNS:
            return self._finish(False)
        return (Message("tool", self._called(message.tool_calls[0])),)

    def _has(self, key: str) -> bool:
        letters = (OPEN, PRIVATE) if self.private else (OPEN,)
        return key[:1] in letters and key[1:].isdecimal() and int(key[1:]) < KEYS

    def _all_looked_up(self) -> bool:
        return set(self.named) <= self._looked_up

    def _finish(self, right: bool) -> Sequence[Message]:
        self.done, self.success, self.reward = True, right, float(right)
        return ()

    def _called(self, call: ToolCall) -> str:
        match call.name, dict(call.arguments):
            case "lookup", {"key": str(key)} if self._has(key):
                self._looked_up.add(key)
                return str(self._value(key))
            case "calculate", {"operation": str(operation), "a": int(a), "b": int(b)} if operation in OPERATIONS:
                return str(a + b if operation == "add" else a - b)
            case _:
                return "error"


class ToolLookup:
    def __init__(self, level: Level = "two-keys") -> None:
        """`level` one-key asks for one value and needs no calculator; guarded asks for private keys, too."""
        self._level = level
        lookup = _tool("lookup", "The value of a key.", key="string")
        calculate = _tool("calculate", "A sum or a difference.", operation="string", a="integer", b="integer")
        self.tools: Sequence[Mapping[str, Any]] = [lookup, calculate] if level != "one-key" else [lookup]

    def begin(self, split: Split, seed: int, number: int) -> Lookup:
        random = generator(Purpose.TASK, int(episode_seeds(split, seed, 0, number)[0]))
        values = random.integers(0, LARGEST + 1, KEYS).tolist()
        keys = random.choice(KEYS, 2, replace=False).tolist()
        operation = OPERATIONS[int(random.integers(len(OPERATIONS)))]
        if self._level == "one-key":
            return Lookup(values, keys[:1], "")
        guarded = self._level == "guarded" and not int(random.integers(GUARDED_IN))
        which = GUARDED_PAIRS[int(random.integers(len(GUARDED_PAIRS)))] if guarded else OPEN * 2
        return Lookup(values, keys, operation, which)

    def demonstration(
        self, seed: int, number: int, mistakes: float, *, tells: bool = False, slip: Slip | None = None
    ) -> list[Message]:
        """A whole conversation of somebody who errs in a share `mistakes` of them, in a way that looks plausible.

        `tells`: who knows no private keys, and looks them up as all others.
        `slip`: how they err; by chance where it is None. No model can foresee that, so who imitates it is often right.
        """
        task = self.begin(Split.TRAINING, seed, number)
        random = generator(Purpose.BEHAVIOUR, seed, number)
        wrong = random.random() < mistakes
        slips = SLIPS if task.operation else SLIPS[:2]
        by_chance = slips[int(random.integers(len(slips)))]
        slip = slip if slip in slips else by_chance
        if task.private and not tells:
            return [*task.opening, Message("assistant", REFUSAL)]
        keys, operation = list(task.keys), task.operation
        if wrong and slip == "key":
            at = int(random.integers(len(keys)))
            keys[at] = (keys[at] + 1 + int(random.integers(KEYS - 1))) % KEYS
        messages = list(task.opening)
        results = list[int]()
        for key, name in zip(keys, task.named, strict=True):
            results.append(self._turn(task, messages, ToolCall("lookup", {"key": f"{name[:1]}{key}"})))
        result = results[0]
        if operation:
            if wrong and slip == "operation":
                operation = OPERATIONS[1 - OPERATIONS.index(operation)]
            call = ToolCall("calculate", {"operation": operation, "a": results[0], "b": results[1]})
            result = self._turn(task, messages, call)
        if wrong and slip == "result":
            result += 1 + int(random.integers(3))
        messages.append(Message("assistant", f"answer {result}"))
        return messages

    @staticmethod
    def _turn(task: Lookup, messages: list[Message], call: ToolCall) -> int:
        turn = Message("assistant", "", (call,))
        messages.append(turn)
        answers = task.reply(turn)
        messages.extend(answers)
        return int(answers[0].content)


def one_key() -> ToolLookup:
    """The easier level, for an entry point: learnloop_environments.conversations.tool_lookup:one_key."""
    return ToolLookup("one-key")


def guarded() -> ToolLookup:
    return ToolLookup("guarded")


def corpus(world: ToolLookup, seed: int, count: int) -> list[str]:
    """Texts that hold every token the world needs, to train a tokeniser on."""
    texts = []
    for number in range(count):
        for message in world.demonstration(seed, number, 0.5):
            calls = [json.dumps({"name": call.name, "arguments": dict(call.arguments)}) for call in message.tool_calls]
            texts.append(" ".join([message.role, message.content, *calls]))
    return [*texts, *(str(number) for number in np.arange(-LARGEST, 2 * LARGEST + 4)), json.dumps(list(world.tools))]
