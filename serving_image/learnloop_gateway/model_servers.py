"""vLLM, llama.cpp and servers of OpenAI's API as upstreams."""

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson

from learnloop_api.wire.language import TokenSampling
from learnloop_common import circuit_breaker, tls


class UpstreamDown(Exception):
    """The server does not answer, fails, or is left alone for a while."""

    def __init__(self, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message[:500])
        self.retry_after = retry_after


class UpstreamBusy(UpstreamDown):
    """The server answers 429."""


class UpstreamFailed(UpstreamDown):
    """The server answers 500: it failed on this request."""


class UpstreamRefused(Exception):
    """The server refuses this request; the message says why."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Some tokens.

    Attributes:
        ids: the tokens.
        log_probs: natural log of the probability each was drawn with, after the temperature; at temperature 0 before
            it. None: unknown.
        finish: why the answer ended; None: it has not.
        total: tokens drawn in all, if the server reports it with the last ones.
    """

    ids: Sequence[int]
    log_probs: Sequence[float] | None
    finish: Literal["stop", "length"] | None = None
    total: int | None = None


def token_ids(value: Any) -> list[int]:
    """`value` as token ids; raises TypeError for anything else."""
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < 2**31 for one in value):
        raise TypeError(f"{str(value)[:80]!r}: not a list of token ids")
    return value


FIRST_SECONDS, SECONDS = 120.0, 600.0
"""Until the first byte of an answer, and for a whole answer."""


MOST_BYTES = 64 * 2**20
LONGEST_LINE = 2**20
MOST_QUOTED = 300
FAILURES = 3
"""In a row, before a server is left alone."""


def fresh_connections() -> aiohttp.TCPConnector:
    """A connection for each request: an idle one may be closed by its server as the next request arrives."""
    return aiohttp.TCPConnector(limit=0, ssl=tls.client_context(), force_close=True)


class ModelServer:
    """One server.

    Args:
        url: base address.
        key: bearer token, where the server wants one.
        first_seconds: until the first byte of an answer, and between two pieces of it.
        seconds: for a whole answer.
    """

    def __init__(
        self, url: str, key: str = "", *, first_seconds: float = FIRST_SECONDS, seconds: float = SECONDS
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=3.0, sock_read=first_seconds)
        self._breaker = circuit_breaker.Breaker(after=FAILURES)
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=fresh_connections(), headers=self._headers, read_bufsize=LONGEST_LINE
            )
        return self._session

    async def get(self, path: str) -> Any:
        """JSON of a GET; raises UpstreamDown. It is not held back by earlier failures."""
        try:
            async with self._client().get(
                f"{self.url}{path}", allow_redirects=False, timeout=aiohttp.ClientTimeout(total=5.0)
            ) as answer:
                body = await _whole(answer)
                if answer.status != 200:
                    raise UpstreamDown(f"{self.url}{path}: HTTP {answer.status}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise UpstreamDown(f"{self.url}{path}: {_reason(error)}") from error
        try:
            return orjson.loads(body or b"{}")
        except ValueError:
            return {}

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """JSON of an answer; raises as `ask`."""
        pieces = [piece async for piece in self.ask(path, body)]
        return pieces[-1] if pieces else None

    async def ask(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """The answer's pieces where it is an event stream, else the whole as one.

        Raises:
            UpstreamDown: no answer, an error of the server's, or it is left alone. Also in the middle of an answer.
            UpstreamBusy: it takes no more for now.
            UpstreamRefused: it does not take this request.
        """
        if not self._breaker.allows():
            raise UpstreamDown(f"{self.url} failed a moment ago and is not tried again yet", retry_after=1)
        try:
            async with aclosing(self._ask(path, body)) as pieces:
                async for piece in pieces:
                    yield piece
        except (UpstreamBusy, UpstreamRefused, UpstreamFailed):
            self._breaker.worked()  # it answers: other requests may succeed
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._breaker.gave_up()
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, UpstreamDown) as error:
            self._breaker.failed()
            raise error if isinstance(error, UpstreamDown) else UpstreamDown(f"{self.url}: {_reason(error)}") from error
        except BaseException:
            self._breaker.gave_up()
            raise
        self._breaker.worked()

    async def _ask(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        address = f"{self.url}{path}"
        async with self._client().post(
            address, data=orjson.dumps(body), allow_redirects=False, timeout=self._timeout
        ) as answer:
            if answer.status != 200:
                raise _refusal(address, answer, await _whole(answer))
            if answer.content_type != "text/event-stream":
                whole = await _whole(answer)
                yield orjson.loads(whole) if "json" in answer.content_type else whole.decode("utf-8", "replace")
                return
            size = 0
            async for line in answer.content:
                size += len(line)
                if size > MOST_BYTES:
                    raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
                if line.startswith(b"data:"):
                    text = line[5:].strip()
                    if text == b"[DONE]":
                        return
                    piece = orjson.loads(text)
                    if isinstance(piece, dict) and "error" in piece:
                        raise UpstreamDown(f"{address}: {str(piece['error'])[:MOST_QUOTED]}")
                    yield piece
                elif line.startswith(b"error:"):
                    raise UpstreamDown(f"{address}: {line[6:].decode('utf-8', 'replace')[:MOST_QUOTED]}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > MOST_BYTES:
            raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
    return bytes(content)


def _refusal(address: str, answer: aiohttp.ClientResponse, body: bytes) -> Exception:
    text = f"{address}: HTTP {answer.status}: {body.decode('utf-8', 'replace')[:MOST_QUOTED]}"
    wait = answer.headers.get("retry-after", "")
    rest = min(int(wait), 60) if wait.isascii() and wait.isdigit() and len(wait) < 5 else 1
    if answer.status == 429:
        return UpstreamBusy(text, retry_after=rest)
    if answer.status in (400, 413, 422):
        return UpstreamRefused(text)
    return (UpstreamFailed if answer.status == 500 else UpstreamDown)(text, retry_after=rest)


def _reason(error: BaseException) -> str:
    return str(error)[:MOST_QUOTED] or type(error).__name__


LOWEST = -1e9


class Upstream:
    """A model server. Its answers raise UpstreamDown, UpstreamBusy and UpstreamRefused."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    async def prepare(self) -> None:
        """Return when the server has the arm's weights and answers; raises UpstreamDown until then."""
        await self._server.get("/v1/models")

    async def close(self) -> None:
        await self._server.close()


class Vllm(Upstream):
    """vLLM: takes and gives token ids.

    Args:
        model: what the server calls the base model.
        adapter: name and folder of the arm's adapter, as the server sees it; None: the base alone.
        stops: ids that end an answer.
    """

    def __init__(self, server: ModelServer, model: str, adapter: tuple[str, str] | None, stops: Sequence[int]) -> None:
        super().__init__(server)
        self._adapter, self._stops = adapter, sorted(stops)
        self._model = adapter[0] if adapter else model

    async def prepare(self) -> None:
        """Load the adapter where the server has none of its name."""
        if self._model in await self._served():
            return
        if self._adapter is None:
            raise UpstreamDown(f"{self._server.url} serves no model {self._model!r}")
        name, folder = self._adapter
        try:
            await self._server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder})
        except (UpstreamRefused, ValueError) as error:  # it answers in plain text, and 400 to a second replica
            if name not in await self._served():
                raise UpstreamDown(f"adapter {name} was not loaded: {error}") from error

    async def _served(self) -> set[str]:
        result = await self._server.get("/v1/models")
        listed = result.get("data") if isinstance(result, dict) else None
        return {str(model.get("id")) for model in listed or () if isinstance(model, dict)}

    async def draw(
        self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool
    ) -> AsyncGenerator[Drawn, None]:
        """Draw an answer. Every number is given, because the server has defaults of the model's own."""
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "logprobs": 1,
            "stop_token_ids": self._stops,
            "skip_special_tokens": False,
            "return_token_ids": True,
            "stream": stream,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        async with aclosing(self._server.ask("/v1/completions", body)) as pieces:
            async for piece in pieces:
                if drawn := _drawn_by_vllm(piece, self._server.url):
                    yield drawn


def _drawn_by_vllm(piece: Any, url: str) -> Drawn | None:
    try:
        choices = piece["choices"]
        if not choices:
            return None
        (choice,) = choices
        ids, finish = choice["token_ids"], choice.get("finish_reason")
        if ids is None:
            raise KeyError("token_ids")
        ids = token_ids(ids)
        chances = (choice.get("logprobs") or {}).get("token_logprobs")
        log_probs = None
        if isinstance(chances, list) and len(chances) == len(ids) and None not in chances:
            log_probs = [_bounded(chance) for chance in chances]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{url} gives no token ids ({error!r}): use vLLM 0.10.2 or newer"
        raise UpstreamDown(problem) from error
    return Drawn(ids, log_probs, None if finish is None else "length" if finish == "length" else "stop")


def _bounded(log_prob: float) -> float:
    return max(LOWEST, min(0.0, float(log_prob))) if math.isfinite(log_prob) else LOWEST


class LlamaCpp(Upstream):
    """llama.cpp: takes and gives token ids. The arm's adapter is loaded at its start."""

    async def prepare(self) -> None:
        await self._server.get("/health")

    async def draw(
        self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool
    ) -> AsyncGenerator[Drawn, None]:
        # Before the sampler chain the server reports the probability by the logits: right at temperature 1 and 0.
        after = sampling.temperature not in (0.0, 1.0)
        body: dict[str, Any] = {
            "prompt": list(prompt),
            "n_predict": sampling.max_tokens,
            "samplers": ["top_k", "top_p", "temperature"],
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": 0.0,
            "typical_p": 1.0,
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n_probs": 1,
            "post_sampling_probs": after,
            "return_tokens": True,
            "cache_prompt": True,
            "stream": stream,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed % 2**32
        async with aclosing(self._server.ask("/completion", body)) as pieces:
            async for piece in pieces:
                yield _drawn_by_llama_cpp(piece, self._server.url)


def _drawn_by_llama_cpp(piece: Any, url: str) -> Drawn:
    try:
        ids = token_ids(piece["tokens"])
        items = [_log_prob(token) for token in piece.get("completion_probabilities") or ()]
        finish = None
        if piece.get("stop"):
            finish = "length" if piece.get("stop_type", "eos") == "limit" else "stop"
        total = piece.get("tokens_predicted") if finish else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamDown(f"{url} gives no token ids ({error!r}): use a llama.cpp of 2025 or newer") from error
    usable = len(items) == len(ids) and None not in items
    log_probs = [one for one in items if one is not None] if usable else None
    return Drawn(ids, log_probs, "length" if finish == "length" else "stop" if finish else None, total)


def _log_prob(token: Mapping[str, Any]) -> float | None:
    log_prob = token.get("logprob")
    if log_prob is None:
        chance = float(token.get("prob") or 0.0)
        if chance <= 0.0:
            return None
        log_prob = math.log(min(1.0, chance))
    return _bounded(float(log_prob))


class OpenAiChat(Upstream):
    """A server of OpenAI's API: its answers are recorded as text.

    Args:
        model: the server's name of its model; it replaces the name in each request.
    """

    def __init__(self, server: ModelServer, model: str) -> None:
        super().__init__(server)
        self.model = model

    async def ask(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The server's answer to `body`, the pieces of its stream or the whole."""
        async with aclosing(self._server.ask(path, body | {"model": self.model})) as pieces:
            async for piece in pieces:
                if not isinstance(piece, dict):
                    raise UpstreamDown(f"{self._server.url}: answers {str(piece)[:80]!r} in place of an object")
                yield piece


TokenServer = Vllm | LlamaCpp
