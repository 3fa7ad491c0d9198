"""A model server that says what a test tells it to, in the wire formats of vLLM, llama.cpp and OpenAI.

Log-probabilities are made up and the same for the same place: what a test looks for is that they arrive.
"""

import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from tokenizers import Tokenizer

from testing.language.tiny_chat_folder import END

Script = Callable[[str], str]


def log_prob(place: int) -> float:
    """Of the token at this place of an answer."""
    return -0.125 * (1 + place % 7)


class ScriptedServer:
    """On a port of its own, in a thread. `with ScriptedServer(folder) as server:`

    Args:
        folder: of the tokeniser.
        script: what is said to a prompt; left out, what `says` holds, one after another, then "hello".
        pause: seconds between two tokens.
    """

    def __init__(self, folder: Path, script: Script | None = None, pause: float = 0.0) -> None:
        self.tokeniser = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.script, self.pause = script, pause
        self.says: deque[str] = deque()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.broken: int = 0
        """A status that all requests are answered with; 0: none."""
        self.breaks_after = -1
        """Tokens after which the connection is cut; -1: never."""
        self.adapters: set[str] = set()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The server is gone, and its port with it."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()

    def _next(self, prompt: str) -> str:
        if self.script is not None:
            return self.script(prompt)
        return self.says.popleft() if self.says else "hello"

    def _ids(self, prompt: list[int], most: int) -> tuple[list[int], str]:
        """Tokens of the next answer, and the reason for their end."""
        text = self._next(self.tokeniser.decode(prompt, skip_special_tokens=False))
        end = self.tokeniser.token_to_id(END)
        assert end is not None
        ids: list[int] = [*self.tokeniser.encode(text).ids, end]
        return ids[:most], "stop" if len(ids) <= most else "length"

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        @app.get("/v1/models")
        async def listed() -> Response:
            if self.broken:
                return Response(status_code=self.broken)
            return JSONResponse({"data": [{"id": name} for name in ("base", *sorted(self.adapters))]})

        @app.post("/{path:path}")
        async def answer(path: str, request: Request) -> Response:
            body = await request.json()
            self.requests.append((path, body))
            if self.broken:
                return Response("broken", self.broken, headers={"retry-after": "7"})
            if path == "v1/load_lora_adapter":
                self.adapters.add(body["lora_name"])
                return Response("Success: loaded")
            if path == "v1/chat/completions":
                return self._chat(body)
            ids, finish = self._ids(body["prompt"], body.get("n_predict") or body["max_tokens"])
            make = _llama if path == "completion" else _vllm
            if not body["stream"]:
                return JSONResponse(make(ids, 0, finish, True))
            return StreamingResponse(self._stream(ids, finish, make), media_type="text/event-stream")

        return app

    async def _stream(self, ids: list[int], finish: str, make: Callable[..., Any]) -> AsyncIterator[bytes]:
        for place, one in enumerate(ids):
            if place == self.breaks_after:
                raise ConnectionResetError
            if self.pause:
                await asyncio.sleep(self.pause)
            last = place + 1 == len(ids)
            if make is _llama:
                yield b"data: %b\n\n" % json.dumps(_llama([one], place, None, False)).encode()
                if last:
                    end = _llama([], place, finish, False) | {"tokens_predicted": len(ids)}
                    yield b"data: %b\n\n" % json.dumps(end).encode()
            else:
                yield b"data: %b\n\n" % json.dumps(make([one], place, finish if last else None, False)).encode()
        if make is not _llama:
            yield b"data: [DONE]\n\n"

    def _chat(self, body: dict[str, Any]) -> Response:
        content = self._next(body["messages"][-1]["content"])
        head = {"id": "x", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            message = {"role": "assistant", "content": content}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
            return JSONResponse(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
        pieces = [
            head | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            for delta, end in (({"role": "assistant", "content": content}, None), ({}, "stop"))
        ]
        text = b"".join(b"data: %b\n\n" % json.dumps(piece).encode() for piece in pieces) + b"data: [DONE]\n\n"
        return Response(text, media_type="text/event-stream")


def _vllm(ids: list[int], place: int, finish: str | None, whole: bool) -> dict[str, Any]:
    chances = [log_prob(place + more) for more in range(len(ids))]
    choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": finish}
    return {"id": "x", "choices": [choice | {"logprobs": {"token_logprobs": chances}}]}


def _llama(ids: list[int], place: int, finish: str | None, whole: bool) -> dict[str, Any]:
    tokens = [{"id": one, "logprob": log_prob(place + more)} for more, one in enumerate(ids)]
    end = {"stop_type": "limit" if finish == "length" else "eos"} if finish else {}
    return {"content": "", "tokens": ids, "stop": finish is not None, "completion_probabilities": tokens} | end
