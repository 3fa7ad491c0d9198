"""Clients of OpenAI-compatible servers: requests with retries and a circuit breaker, and chat models."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import httpx
import orjson

from learnloop_common import chat, circuit_breaker
from learnloop_dataplane.errors import Unavailable

T = TypeVar("T")
Probe = tuple[str, Any, Callable[[Any], Any]]
OK, BUSY = 200, 429
BUSY_SECONDS = 1.0  # that a busy server rests where it names no time: many proxies do not
REFUSED = frozenset({400, 413, 422})  # how servers answer what their model does not take
MOST_QUOTED = 200  # characters of an error
MOST_ERROR = 4096  # bytes of an error's text
FAULTS = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, LookupError, TypeError)


class NotTaken(Exception):
    """The server works, but refuses this request (`refused`) or fails on it. `rest`: seconds until it may take it."""

    def __init__(self, why: str, *, refused: bool, rest: float = 0.0) -> None:
        super().__init__(why)
        self.refused, self.rest = refused, rest


class ErrorStatus(ValueError):
    """An answer of another status than 200. `rest`: seconds that the server asks to be left alone."""

    def __init__(self, why: str, rest: float) -> None:
        super().__init__(why)
        self.rest = rest


class ModelServer:
    """One server, one key.

    Args:
        url: base of the API, e.g. https://host/v1.
        probe: path, body and reader of a request that the server answers as long as it works.
        key: bearer token, if the server wants one.
        seconds: for a whole answer.
        most_bytes: of an answer.
        name: of what it is, for error messages.
        breaker: shared by all callers.
    """

    def __init__(
        self,
        url: str,
        probe: Probe,
        key: str | None = None,
        *,
        seconds: float,
        most_bytes: int,
        transport: httpx.AsyncBaseTransport | None = None,
        name: str = "the model server",
        breaker: circuit_breaker.Breaker | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._name = f"{name} {self.url}"
        self._probe = probe
        self._seconds = seconds
        self._most = most_bytes
        self._breaker = breaker or circuit_breaker.Breaker()
        # A compressed answer is refused: unpacked, a small one could fill the memory before it is measured.
        plain = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers = plain | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(
            headers=headers, timeout=seconds, trust_env=False, follow_redirects=False, transport=transport
        )

    async def post(self, path: str, body: Any, read: Callable[[Any], T]) -> T:
        """Returns `read` of the answer's JSON.

        Args:
            read: raises ValueError, LookupError or TypeError for what cannot be used.

        Raises:
            NotTaken: the server works, but refuses this request or fails on it.
            Unavailable: the server does not work, or is left alone for now.
        """
        if not self._breaker.allows():
            why = "it failed a moment ago and is not tried again yet"
            raise Unavailable(f"{self._name} ({why})", retry_after=max(1, round(self._breaker.rest)))
        try:
            answer = await self._answered(path, body, read)
        except NotTaken:
            self._breaker.worked()
            raise
        except FAULTS as error:
            why, rest = str(error)[:MOST_QUOTED] or type(error).__name__, getattr(error, "rest", 0.0)
            if await self.works():
                sentence = f"the server fails on this request, and on no other: {why}"
                raise NotTaken(sentence, refused=False, rest=rest) from error
            raise Unavailable(f"{self._name} ({why})") from error
        except BaseException:
            self._breaker.gave_up()
            raise
        self._breaker.worked()
        return answer

    async def works(self) -> bool:
        """Whether the probe is answered; if not, the server is left alone for a while."""
        try:
            await self._answered(*self._probe)
        except (NotTaken, *FAULTS) as error:
            self._breaker.failed(getattr(error, "rest", 0.0))
            return False
        except BaseException:
            self._breaker.gave_up()
            raise
        self._breaker.worked()
        return True

    async def _answered(self, path: str, body: Any, read: Callable[[Any], T]) -> T:
        async with asyncio.timeout(self._seconds), aclosing(await self._begun(path, orjson.dumps(body))) as answer:
            if (encoding := answer.headers.get("content-encoding", "identity")) != "identity":
                raise ValueError(f"an answer with Content-Encoding {encoding[:20]}, though identity was asked for")
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > self._most:
                    raise ValueError(f"an answer of more than {self._most} bytes")
            if answer.status_code == OK:
                return read(orjson.loads(content))
        why = f"HTTP {answer.status_code}: {_sentence(content)}".removesuffix(": ")
        if answer.status_code in REFUSED:
            raise NotTaken(f"refused with {why}", refused=True)
        raise ErrorStatus(why, _rest(answer))

    async def _begun(self, path: str, content: bytes) -> httpx.Response:
        """The answer, of which no part of the body is read yet."""
        request = self._client.build_request("POST", f"{self.url}/{path}", content=content)
        return await self._client.send(request, stream=True)

    async def close(self) -> None:
        await self._client.aclose()


def chat_probe(model: str) -> Probe:
    """A request that a chat model answers as long as it works."""
    body = {"model": model, "messages": [{"role": "user", "content": "Say ok."}]}
    return "chat/completions", body, lambda answer: answer["choices"][0]["message"]


def message(answer: Any) -> Any:
    """The text of an answer of /chat/completions; None where the model refused.

    Raises:
        LookupError, TypeError: the answer has another shape.
    """
    reply = answer["choices"][0]["message"]
    if not isinstance(reply, dict):
        raise TypeError("the answer's message is not an object")
    return reply.get("content")


def _rest(answer: httpx.Response) -> float:
    after = answer.headers.get("retry-after", "")
    if after.isascii() and after.isdigit() and len(after) < 7:
        return float(after)
    return BUSY_SECONDS if answer.status_code == BUSY else 0.0


def _sentence(content: bytes | bytearray) -> str:
    """The server's own explanation of an error: `error.message`, `error` or `message` of its JSON, else its text."""
    text = bytes(content[:MOST_ERROR]).decode(errors="replace")
    try:
        problem = orjson.loads(content)
        problem = problem.get("error") or problem.get("message") or problem.get("detail") or text
        text = problem.get("message") or text if isinstance(problem, dict) else problem
    except (ValueError, AttributeError):
        pass
    return " ".join(str(text).split())[:MOST_QUOTED]


class ChatModel:
    """One model of one server, asked at temperature 0 where it takes one."""

    def __init__(self, server: ModelServer, model: str, most_tokens: int) -> None:
        self.server, self._model, self._most = server, model, most_tokens
        self._fields = chat.ChatFields()

    async def ask(self, messages: Sequence[dict[str, str]], read: Callable[[Any], T]) -> T:
        """Returns `read` of the answer; raises as ModelServer.post."""
        body = {"model": self._model, "messages": list(messages), "temperature": 0, "max_tokens": self._most}
        first: NotTaken | None = None
        while True:
            sent = self._fields.of(body)
            try:
                return await self.server.post("chat/completions", sent, read)
            except NotTaken as problem:
                first = first or problem
                too_long = "HTTP 413" in str(problem)
                if too_long or not problem.refused or not self._fields.refused(sent, str(problem)):
                    raise first from None
