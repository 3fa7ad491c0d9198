"""Between messages and token ids: the chat template is rendered once, and what was sampled is only ever appended to.

A template that renders a whole history writes the model's own tool calls again, with other spaces or another order of
keys. So the opening is rendered alone, and what the world says later is rendered behind a placeholder of an answer: the
text between the end of an answer and the beginning of the next turn is all that is ever encoded.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from learnloop_common.chat import ControlTokens, pieces
from learnloop_environments.conversations.conversation_world import Message, ToolCall
from learnloop_environments.errors import ConfigError

FIELD = "spec.data.languageModel"
PLACEHOLDER = "learnloop-answer"
LONGEST_KEY = 512
"""Characters of a continuation that is worth remembering: worlds repeat short ones."""
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
FIX = "use a model whose chat template ends an answer with its end-of-sequence token and knows tools"


def template_digest(template: str) -> str:
    return hashlib.sha256(template.encode()).hexdigest()


class Chat:
    """A tokeniser with its chat template, for one set of tools."""

    def __init__(self, tokeniser: Any, tools: Sequence[Mapping[str, Any]], stops: Sequence[int] = ()) -> None:
        """`stops`: further ids that end a turn, as generation_config.json has; ConfigError without a template."""
        if not getattr(tokeniser, "chat_template", None) or tokeniser.eos_token_id is None:
            problem = "has no chat template, or no end-of-sequence token"
            raise ConfigError(f"{FIELD}.base", tokeniser.name_or_path, problem, FIX)
        self._tokeniser, self._tools = tokeniser, [dict(tool) for tool in tools]
        self.stops = frozenset({int(tokeniser.eos_token_id), *map(int, stops)})
        self._controls = ControlTokens(tokeniser.added_tokens_decoder.values())
        self._continuations: dict[str, list[int]] = {}

    @cached_property
    def digest(self) -> str:
        return template_digest(self._tokeniser.chat_template)

    def _rendered(self, messages: Sequence[Message], *, prompt: bool) -> str:
        try:
            text = self._tokeniser.apply_chat_template(
                self._controls.marked([message.to_template() for message in messages]),
                tools=self._controls.marked(self._tools) or None,
                tokenize=False,
                add_generation_prompt=prompt,
            )
        except Exception as error:  # templates are foreign code (Jinja) and raise what they like
            problem = f"cannot render messages of {', '.join(one.role for one in messages)[:80]} ({str(error)[:200]})"
            raise ConfigError(f"{FIELD}.base", "chat template", problem, FIX) from None
        return str(text)

    def _encoded(self, text: str) -> list[int]:
        encode = self._tokeniser.encode
        return [int(word) for piece in pieces(text) for word in encode(piece, add_special_tokens=False)]

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The ids a conversation begins with, the beginning of the model's turn included."""
        return self._encoded(self._rendered(messages, prompt=True))

    def continuation(self, messages: Sequence[Message]) -> list[int]:
        """The ids between the end-of-sequence token of one answer and the next turn, in which the world says this."""
        key = json.dumps([[message.role, message.content] for message in messages])
        ids = self._continuations.get(key)
        if ids is None:
            answer = PLACEHOLDER
            while answer in json.dumps([key, self._tools]):  # a text that contains it must not be taken for it
                answer += "-"
            answered = (Message("user", "learnloop-question"), Message("assistant", answer))
            _, placeholder, tail = self._rendered([*answered, *messages], prompt=True).rpartition(answer)
            end = self._tokeniser.eos_token
            if not placeholder or not tail.startswith(end):
                raise ConfigError(f"{FIELD}.base", "chat template", f"does not end an answer with {end}", FIX)
            ids = self._encoded(tail[len(end) :])
            if len(self._continuations) < 4096 and len(key) < LONGEST_KEY:
                self._continuations[key] = ids
        return ids

    def answered(self, history: Sequence[Message], text: str) -> tuple[list[int], list[bool]]:
        """A history as a request sends it and the text of an answer to it; which ids are the answer's."""
        before, answer = self.opening(history), self._answer(Message("assistant", text))
        return before + answer, [False] * len(before) + [True] * len(answer)

    def demonstration(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """A conversation as ids, and which of them its assistant said: texts that were never sampled.

        A greeting, with which the assistant begins, answers nothing: it is context.
        """
        turns = [at for at, one in enumerate(messages) if one.role == "assistant" and _asks(messages[:at])]
        if not turns:
            raise ConfigError("spec.data", "conversation", "has no answer of the assistant", "leave it out")
        ids = self.opening(messages[: turns[0]])
        learned = [False] * len(ids)
        for place, at in enumerate(turns):
            answer = self._answer(messages[at])
            ids, learned = ids + answer, learned + [True] * len(answer)
            following = messages[at + 1 : turns[place + 1]] if place + 1 < len(turns) else ()
            if following:
                more = self.continuation(following)
                ids, learned = ids + more, learned + [False] * len(more)
        return ids, learned

    def framing(self) -> tuple[str, str, str]:
        """Three texts that the template writes: before a question, between it and its answer, and after that.

        With them any program that has the tokeniser reads one question and one answer as `demonstration` does: what is
        before the answer is encoded as one text, the answer with its end as another. Raises ConfigError.
        """
        question = Message("user", "learnloop-question")
        opening = self._rendered((question,), prompt=True)
        before, separator, between = opening.partition(question.content)
        whole = self._rendered((question, Message("assistant", PLACEHOLDER)), prompt=False)
        end = self._tokeniser.eos_token
        if not separator or not whole.startswith(f"{opening}{PLACEHOLDER}{end}"):
            raise ConfigError(f"{FIELD}.base", "chat template", "does not write question and answer as they are", FIX)
        return before, between, end

    def written(self) -> str:
        """The tokeniser as tokenizer.json has it; raises ConfigError for one of another library."""
        backend = getattr(self._tokeniser, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(f"{FIELD}.base", self._tokeniser.name_or_path, "has no tokenizer.json", FIX)
        return str(backend.to_str())

    def _answer(self, message: Message) -> list[int]:
        question = (Message("user", "learnloop-question"),)
        begun, whole = self._rendered(question, prompt=True), self._rendered([*question, message], prompt=False)
        end = self._tokeniser.eos_token
        if not whole.startswith(begun) or end not in whole[len(begun) :]:
            raise ConfigError(f"{FIELD}.base", "chat template", f"does not end an answer with {end}", FIX)
        text = whole[len(begun) :]
        return self._encoded(text[: text.rindex(end) + len(end)])

    def message(self, sampled: Sequence[int]) -> Message:
        """The model's message, read from its ids; a tool call that is not a JSON object makes it malformed."""
        words = list(sampled)
        while words and words[-1] in self.stops:
            words.pop()
        text = str(self._tokeniser.decode(words, skip_special_tokens=False))
        calls = [_call(body) for body in CALL.findall(text)]
        rest = CALL.sub("", text)
        malformed = None in calls or "<tool_call>" in rest or "</tool_call>" in rest
        return Message("assistant", rest.strip(), tuple(call for call in calls if call is not None), malformed)


def _asks(messages: Sequence[Message]) -> bool:
    return any(message.role in ("user", "tool") for message in messages)


def _call(text: str) -> ToolCall | None:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ToolCall(call["name"], arguments) if isinstance(arguments, dict) else None
