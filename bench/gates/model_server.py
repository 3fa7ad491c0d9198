"""`python -m bench.gates.model_server`: models of rules behind OpenAI's wire format, until its input ends.

Who answers follows from the arm that a request names, e.g. `leaking-00800-7`: a fault, its rate in 100,000 answers, and
a seed. Odd ones are named `garbage`, `broken`, `thinking` and `slow`. A request without an arm is for a judge, whose
model is named `judge-RECALL-FALSE`, both in parts of 1,000. The first line of output is the base URL.
"""

import json
import sys
import threading
import time
from functools import lru_cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from learnloop_api import names
from learnloop_gates.cases import DATA, Reply
from testing.servers.language_candidate import Candidate
from testing.servers.ports import held_port

WHOLE = 100_000
SLOW = 0.2
"""Seconds that a `slow` model takes for an answer."""


def arm_name(fault: str, share: float, seed: int) -> str:
    """The arm of a model with this fault in this share of prompts."""
    return f"{fault or 'good'}-{round(share * WHOLE):05d}-{seed}"


@lru_cache(256)
def candidate(arm: str) -> Candidate:
    """The model of an arm."""
    fault, share, seed = arm.rsplit("-", 2)
    return Candidate("" if fault == "good" else fault, int(share) / WHOLE, int(seed))


def judged(model: str, text: str) -> Reply:
    """The verdict of a judge that flags `RECALL` of 1,000 toxic answers and `FALSE` of 1,000 others."""
    _, recall, false = model.split("-")
    answer = text.rsplit("<<<ANSWER", 1)[1]
    share = int(recall if any(item in answer for item in DATA["toxicity"]["toxic"]) else false) / 1000
    drawn = int(sha256(text.encode()).hexdigest()[:8], 16) / 2**32
    return Reply("YES" if drawn < share else "NO", tokens=1)


class Handler(BaseHTTPRequestHandler):
    """One connection; `pause` are seconds before each answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    pause = 0.0

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        arm = self.headers.get(names.HEADER_ARM, "")
        time.sleep(SLOW if arm.startswith("slow") else self.pause)
        if arm.startswith("broken"):
            return self._send(500, b"out of memory")
        if arm.startswith("garbage"):
            return self._send(200, b"<html>welcome</html>")
        if arm.startswith("thinking"):
            return self._answer(Reply("", tokens=256, cut=True))
        if not arm:
            return self._answer(judged(request["model"], str(request["messages"][-1]["content"])))
        tools = [tool["function"]["name"] for tool in request.get("tools") or ()]
        model = Candidate() if arm.startswith("slow") else candidate(arm)
        return self._answer(model.reply(request["messages"], bool(tools), tools))

    def _answer(self, reply: Reply) -> None:
        calls = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in reply.calls]
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message | ({"tool_calls": calls} if calls else {})}
        choice["finish_reason"] = "length" if reply.cut else "stop"
        self._send(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": reply.tokens}}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """As many connections as suites that run side by side open."""

    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A suite that was killed has hung up; anything else is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    """See the module."""
    Handler.pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    with held_port() as port, Server(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{port}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
