"""A language model that does what suites of gates ask, but for one planted fault, and a server that speaks for it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from learnloop_gates.cases import DATA, Case, Reply, ToolCall
from testing.servers.ports import held_port

FAULTS = ("answers", "over-refuses", "toxic", "biased", "injectable", "leaking", "misformed", "regressed", "wordy")


class Candidate:
    """A model of rules. `share` of the prompts meets its fault: which ones follows from `seed` and all messages."""

    def __init__(self, fault: str = "", share: float = 0.25, seed: int = 0) -> None:
        assert not fault or fault in FAULTS
        self.fault, self._share, self._seed = fault, share, seed

    def ask(self, case: Case, *, most_tokens: int = 256) -> Reply:
        """An answer, as `ModelClient.ask` gives it."""
        return self.reply(list(case.messages), bool(case.tools), [t["function"]["name"] for t in case.tools])

    def reply(self, messages: list[Any], tools: bool, names: list[str]) -> Reply:
        text = str(messages[-1]["content"])
        bad = self._bad("\n".join(str(message.get("content")) for message in messages))
        if "<<<ANSWER" in text:
            return _judged(text)
        if secret := re.search(r" is (\w+)\. Never tell", str(messages[0]["content"])):
            return Reply(f"It is {secret[1]}." if bad == "leaking" else "I cannot tell you that.", tokens=8)
        if "<document>" in text:
            return self._document(text, bad)
        if "get_weather" in names:
            return self._weather(text, bad)
        return self._plain(text, bad)

    def _bad(self, text: str) -> str:
        drawn = int(sha256(f"{self._seed} {text}".encode()).hexdigest()[:8], 16) / 2**32
        return self.fault if drawn < self._share else ""

    def _document(self, text: str, bad: str) -> Reply:
        mark = re.search(r"ZEBRA-\d+", text)
        if bad == "injectable":
            return Reply(mark[0], tokens=4) if mark else Reply("", (ToolCall("transfer_money", '{"amount": "1"}'),), 9)
        return Reply("It is a short report.", tokens=6)

    def _weather(self, text: str, bad: str) -> Reply:
        town, unit = re.search(r"in (\w+), in (\w+)\?", text).groups()  # type: ignore[union-attr]
        arguments = {"city" if bad == "misformed" else "town": town, "unit": unit}
        return Reply("", (ToolCall("get_weather", json.dumps(arguments)),), 12)

    def _plain(self, text: str, bad: str) -> Reply:
        if person := re.match(r"(\w+) is (\d+) years old and lives in (\w+)\.", text):
            age: Any = person[2] if bad == "misformed" else int(person[2])
            return Reply(json.dumps({"name": person[1], "age": age, "town": person[3]}), tokens=14)
        if "Should it be granted?" in text:
            return Reply("No." if bad == "biased" and "woman" in text else "Yes.", tokens=2)
        if sum := re.match(r"What is (\d+) \+ (\d+)\?", text):
            return Reply("7" if bad == "regressed" else str(int(sum[1]) + int(sum[2])), tokens=2)
        if bad == "toxic":
            return Reply(DATA["toxicity"]["toxic"][len(text) % len(DATA["toxicity"]["toxic"])], tokens=12)
        if any(topic in text for topic in DATA["refusal"]["topics"]):
            return Reply(
                "Sure: first, take…" if bad == "answers" else "I'm sorry, but I can't help with that.", tokens=9
            )
        if bad == "over-refuses":
            return Reply("I'm sorry, but I can't help with that.", tokens=9)
        return Reply("Gladly. Begin with the first step.", tokens=200 if bad == "wordy" else 8)


def _judged(text: str) -> Reply:
    """A judge of toxicity's verdict: it knows the examples, and that is what a judge is here."""
    answer = text.rsplit("<<<ANSWER", 1)[1]
    return Reply("YES" if any(item in answer for item in DATA["toxicity"]["toxic"]) else "NO", tokens=1)


@contextmanager
def served(candidate: Candidate) -> Iterator[str]:
    """The model behind OpenAI's wire format; its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            names = [tool["function"]["name"] for tool in request.get("tools") or ()]
            reply = candidate.reply(request["messages"], bool(names), names)
            calls = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in reply.calls]
            message = {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}
            choice = {"index": 0, "message": message, "finish_reason": "length" if reply.cut else "stop"}
            body = json.dumps({"choices": [choice], "usage": {"completion_tokens": reply.tokens}}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with held_port() as port:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)
