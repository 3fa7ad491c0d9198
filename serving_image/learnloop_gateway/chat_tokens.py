"""Tokeniser and chat template: conversations as token ids, and answers back as text."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from learnloop_common.chat import ControlTokens, pieces
from learnloop_gateway import replies

PLACEHOLDER = "learnloop-answer"
QUESTION: dict[str, Any] = {"role": "user", "content": "learnloop-question"}
MOST_BYTES = 64 * 2**20
TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, AttributeError, KeyError, IndexError, RecursionError)
Messages = Sequence[dict[str, Any]]
Tools = Sequence[dict[str, Any]]


class TokeniserError(ValueError):
    """The folder cannot be spoken by; the message names the file and the fix."""


class NoContinuation(ValueError):
    """The template says nothing that could be appended to an answer."""


class ChatTokens:
    """Tokeniser and chat template of one folder.

    Attributes:
        stops: ids that end an answer.
        template_sha256: digest of the template's text; None where there is none.
        context_length: of config.json; None where it says none.
    """

    def __init__(self, folder: Path) -> None:
        """Raises TokeniserError."""
        message = _json(folder / "tokenizer_config.json")
        try:
            self._tokeniser: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises bare exceptions
            problem = f"{folder / 'tokenizer.json'}: cannot be read as a tokeniser: {str(error)[:200]}"
            raise TokeniserError(f"{problem}; save the model by save_pretrained of transformers") from None
        self._controls = ControlTokens(self._tokeniser.get_added_tokens_decoder().values())
        self._names = {name: _name(message.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        self._end = self._names["eos_token"]
        self.stops = self._read_stops(folder)
        if not self.stops:
            raise TokeniserError(f"{folder / 'tokenizer_config.json'}: eos_token is missing: nothing ends an answer")
        config = _json(folder / "config.json")
        self.context_length: int | None = config.get("max_position_embeddings")
        text = _template_text(folder, message)
        self.template_sha256 = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        self._template = None if text is None else _compiled(text)

    def _read_stops(self, folder: Path) -> frozenset[int]:
        own = self._tokeniser.token_to_id(self._end) if self._end else None
        more = _json(folder / "generation_config.json").get("eos_token_id")
        listed = more if isinstance(more, list) else [more]
        return frozenset(int(word) for word in (own, *listed) if isinstance(word, int))

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without the special tokens that a text begins with."""
        return list(self._tokeniser.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without those that end an answer."""
        words = list(ids)
        while words and words[-1] in self.stops:
            words.pop()
        return str(self._tokeniser.decode(words, skip_special_tokens=False))

    def stream(self) -> "TextStream":
        return TextStream(self._tokeniser, self.stops)

    def opening(self, messages: Messages, tools: Tools) -> list[int]:
        """The ids a conversation begins with, the beginning of the model's turn included; raises ApiError 400."""
        try:
            return self._encode_pieces(self._render(messages, tools))
        except TEMPLATE_ERRORS as error:
            text = f"messages: the model's chat template does not take them: {str(error)[:300]}"
            raise replies.ApiError(400, text, param="messages", code="template") from None

    def continuation(self, messages: Messages, tools: Tools, ended: bool) -> list[int]:
        """The ids to append to an answer before the model's next turn, in which the world says `messages`.

        Args:
            ended: the answer drew an id that ends it.

        Raises:
            NoContinuation: the template does not end an answer in a way that could be recognised.
        """
        answer = PLACEHOLDER
        while answer in json.dumps([list(messages), list(tools)]):  # a message may contain it
            answer += "-"
        begun = [QUESTION, {"role": "assistant", "content": answer}]
        try:
            _, placeholder, tail = self._render([*begun, *messages], tools).rpartition(answer)
        except TEMPLATE_ERRORS as error:
            raise NoContinuation(str(error)[:200]) from None
        if not placeholder or not tail.startswith(self._end):
            raise NoContinuation(f"the template does not end an answer with {self._end}")
        return self._encode_pieces(tail[len(self._end) :] if ended else tail)

    def _encode_pieces(self, rendered: str) -> list[int]:
        return [one for piece in pieces(rendered) for one in self.encode(piece)]

    def _render(self, messages: Messages, tools: Tools) -> str:
        if self._template is None:
            raise ValueError("the model has no chat template: save one in its folder as chat_template.jinja")
        names = {name: text for name, text in self._names.items() if text}
        return str(
            self._template.render(
                messages=self._controls.marked(messages),
                tools=self._controls.marked(tools) or None,
                add_generation_prompt=True,
                **names,
            )
        )


class TextStream:
    """Text of ids as they come: half a character waits for its other half."""

    def __init__(self, tokeniser: Tokenizer, stops: frozenset[int]) -> None:
        self._tokeniser, self._stops = tokeniser, stops
        self._stream = DecodeStream(skip_special_tokens=False)

    def step(self, one: int) -> str:
        """The text that the next id adds; nothing for one that ends an answer."""
        if one in self._stops:
            return ""
        try:
            return self._stream.step(self._tokeniser, one) or ""
        except Exception:  # bytes that never become a character: the library raises a bare exception
            self._stream = DecodeStream(skip_special_tokens=False)
            return "\ufffd"


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TokeniserError(f"{path}: longer than {MOST_BYTES} bytes")
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokeniserError(f"{path}: cannot be read: {str(error)[:200]}") from None
    return result if isinstance(result, dict) else {}


def _name(token: Any) -> str:
    """A special token is its text, or an object with it."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _template_text(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    result = config.get("chat_template")
    if isinstance(result, list):  # several, by name
        result = next((item.get("template") for item in result if item.get("name") == "default"), None)
    return result if isinstance(result, str) else None


def _compiled(text: str) -> Any:
    """A template as transformers compiles it: the same blanks, filters and globals give the same text."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(text)
    except TemplateError as error:
        raise TokeniserError(f"invalid chat template: {str(error)[:200]}") from None


def _tojson(value: Any, indent: int | None = None, **more: Any) -> str:
    more = {name: more[name] for name in ("separators", "sort_keys", "ensure_ascii") if name in more}
    return json.dumps(value, indent=indent, **({"ensure_ascii": False} | more))


def _refuse(message: str) -> None:
    raise TemplateError(message)
