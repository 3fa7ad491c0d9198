"""vLLM, llama.cpp and servers of OpenAI's API as upstreams."""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from learnloop_api.wire.language import TokenSampling
from learnloop_gateway.upstream import Drawn, ModelServer, UpstreamDown, UpstreamRefused, token_ids

LOWEST = -1e9


class Upstream:
    """A model server. Its answers raise UpstreamDown, UpstreamBusy and UpstreamRefused."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    async def prepare(self) -> None:
        """Return when the server has the arm's weights and answers; raises UpstreamDown until then."""
        await self._server.get("/v1/models")

    async def close(self) -> None:
        """Close the connections."""
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
        """Wait for its model."""
        await self._server.get("/health")

    async def draw(
        self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool
    ) -> AsyncGenerator[Drawn, None]:
        """Draw an answer."""
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
