"""An embedder behind an OpenAI-compatible `/embeddings`: vLLM, TEI, Ollama, LiteLLM or a provider."""

import logging
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from learnloop_dataplane.embedding.embedder import TRUST, Vector
from learnloop_dataplane.errors import Unavailable

log = logging.getLogger(__name__)
TIMEOUT_SECONDS = 10.0
REFUSED = frozenset({400, 413, 422})  # how servers answer a text that is too long for their model
PROBE = "ok"  # a text that every model takes
BATCH = 64


class HttpEmbedder:
    """Sends texts 64 at a time and normalises what comes back.

    Args:
        url: base of the API, e.g. https://host/v1.
        model: name the server knows the model by; part of the embedder's name, so a new model re-embeds.
        dimensions: length of its vectors; an answer of another length is refused.
        key: bearer token, if the server wants one.
    """

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = f"http:{model}:{dimensions}"
        self.dimensions = dimensions
        self.instant = False
        self.trust = TRUST
        self._url = url.rstrip("/") + "/embeddings"
        self._model = model
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.AsyncClient(
            headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, follow_redirects=False, transport=transport
        )

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. A text without anything in it is not sent: its vector is zero.

        Raises:
            Unavailable: no answer, an error, or an answer that is not as many vectors of the right length.
        """
        vectors = [np.zeros(self.dimensions, dtype=np.float32) for _ in texts]
        asked = [place for place, text in enumerate(texts) if text.strip()]
        for start in range(0, len(asked), BATCH):
            places = asked[start : start + BATCH]
            for place, vector in zip(places, await self._ask([texts[place] for place in places]), strict=True):
                vectors[place] = vector
        return vectors

    async def close(self) -> None:
        """Hangs up."""
        await self._client.aclose()

    async def _ask(self, texts: list[str]) -> list[Vector]:
        try:
            answer = await self._client.post(self._url, json={"model": self._model, "input": texts})
            if answer.status_code in REFUSED:
                return await self._ask_apart(texts, answer.status_code)
            answer.raise_for_status()
            return self._read(answer.json(), len(texts))
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"the embedder {self._url} ({str(error)[:200] or type(error).__name__})") from error

    async def _ask_apart(self, texts: list[str], status: int) -> list[Vector]:
        """One text that the server does not take must not keep the others from theirs. Alone it gets no direction: it
        is found by its words, and not asked again.

        Raises:
            httpx.HTTPStatusError: the server takes no text at all; a wrong model name looks like this.
        """
        if len(texts) == 1:
            (await self._client.post(self._url, json={"model": self._model, "input": [PROBE]})).raise_for_status()
            log.warning("the embedder %s refuses a text of %d characters with %d", self._url, len(texts[0]), status)
            return [np.zeros(self.dimensions, dtype=np.float32)]
        middle = len(texts) // 2
        return [*await self._ask(texts[:middle]), *await self._ask(texts[middle:])]

    def _read(self, body: Any, expected: int) -> list[Vector]:
        rows = sorted(body["data"], key=lambda row: int(row["index"]))
        if len(rows) != expected:
            raise ValueError(f"{len(rows)} vectors for {expected} texts")
        matrix = np.array([row["embedding"] for row in rows], dtype=np.float32)
        if matrix.shape != (expected, self.dimensions) or not np.isfinite(matrix).all():
            raise ValueError(f"vectors of shape {matrix.shape}, expected {(expected, self.dimensions)} finite numbers")
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        return list(matrix / np.maximum(lengths, 1e-12))
