"""vLLM: token ids in and out by its /v1/completions, adapters loaded at run time.

It has to run with `--logprobs-mode processed_logprobs`, or its log-probabilities are those before the temperature. They
are then used at temperature 1 alone.
"""

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from learnloop_api.wire.language import TokenSampling
from learnloop_gateway.upstreams.http import ModelServer
from learnloop_gateway.upstreams.port import Drawn, UpstreamDown, UpstreamRefused, token_ids

LOWEST = -1e9


class Vllm:
    """See TokenUpstream.

    Args:
        model: what the server calls the base model.
        adapter: name and folder of the arm's adapter, as the server sees it; None: the base alone.
        stops: ids that end an answer.
        processed: its log-probabilities are those after the temperature.
    """

    def __init__(
        self,
        server: ModelServer,
        model: str,
        adapter: tuple[str, str] | None,
        stops: Sequence[int],
        *,
        processed: bool = True,
    ) -> None:
        self._server, self._adapter, self._stops, self._processed = server, adapter, sorted(stops), processed
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
        found = await self._server.get("/v1/models")
        listed = found.get("data") if isinstance(found, dict) else None
        return {str(model.get("id")) for model in listed or () if isinstance(model, dict)}

    async def draw(
        self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool
    ) -> AsyncGenerator[Drawn, None]:
        """See TokenUpstream. Every number is said: the server has defaults of the model's own."""
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
        known = self._processed or sampling.temperature == 1.0
        async with aclosing(self._server.ask("/v1/completions", body)) as pieces:
            async for piece in pieces:
                if drawn := _drawn(piece, known, self._server.url):
                    yield drawn

    async def close(self) -> None:
        """See TokenUpstream."""
        await self._server.close()


def _drawn(piece: Any, known: bool, url: str) -> Drawn | None:
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
        if known and isinstance(chances, list) and len(chances) == len(ids) and None not in chances:
            log_probs = [_bounded(chance) for chance in chances]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{url} gives no token ids ({error!r}): use vLLM 0.10.2 or newer"
        raise UpstreamDown(problem) from error
    return Drawn(ids, log_probs, None if finish is None else "length" if finish == "length" else "stop")


def _bounded(log_prob: float) -> float:
    return max(LOWEST, min(0.0, float(log_prob))) if math.isfinite(log_prob) else LOWEST
