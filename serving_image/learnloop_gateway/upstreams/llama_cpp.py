"""llama.cpp's server: token ids in and out by its own /completion; adapters at start, their scale by request.

Its samplers are named one by one: what stands in its defaults (top-k 40, top-p 0.95, min-p 0.05, penalties) would cut
the distribution without a word.
"""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from learnloop_api.wire.language import TokenSampling
from learnloop_gateway.upstreams.http import ModelServer
from learnloop_gateway.upstreams.port import Drawn, UpstreamDown, token_ids

LOWEST = -1e9


class LlamaCpp:
    """See TokenUpstream.

    Args:
        adapter: number of the arm's adapter among those the server was started with; None: the base alone.
        adapters: how many it was started with: the others are switched off in each request.
    """

    def __init__(self, server: ModelServer, adapter: int | None = None, adapters: int = 0) -> None:
        self._server = server
        self._scales = [{"id": one, "scale": 1.0 if one == adapter else 0.0} for one in range(adapters)]

    async def prepare(self) -> None:
        """Wait for its model."""
        await self._server.get("/health")

    async def draw(
        self, prompt: Sequence[int], sampling: TokenSampling, *, stream: bool
    ) -> AsyncGenerator[Drawn, None]:
        """See TokenUpstream."""
        # Before the sampler chain the server says what the logits alone give: right at temperature 1, and at 0.
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
        if self._scales:
            body["lora"] = self._scales
        async with aclosing(self._server.ask("/completion", body)) as pieces:
            async for piece in pieces:
                yield _drawn(piece, self._server.url)

    async def close(self) -> None:
        """See TokenUpstream."""
        await self._server.close()


def _drawn(piece: Any, url: str) -> Drawn:
    try:
        ids = token_ids(piece["tokens"])
        found = [_log_prob(token) for token in piece.get("completion_probabilities") or ()]
        finish = None
        if piece.get("stop"):
            finish = "length" if piece.get("stop_type", "eos") == "limit" else "stop"
        total = piece.get("tokens_predicted") if finish else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamDown(f"{url} gives no token ids ({error!r}): use a llama.cpp of 2025 or newer") from error
    usable = len(found) == len(ids) and None not in found
    log_probs = [one for one in found if one is not None] if usable else None
    return Drawn(ids, log_probs, "length" if finish == "length" else "stop" if finish else None, total)


def _log_prob(token: Mapping[str, Any]) -> float | None:
    said = token.get("logprob")
    if said is None:
        chance = token.get("prob")
        if chance is None or float(chance) <= 0.0:
            return None
        said = math.log(min(1.0, float(chance)))
    said = float(said)
    return max(LOWEST, min(0.0, said)) if math.isfinite(said) else LOWEST
