"""The client of gates asks each model in the fields that it takes."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from learnloop_common.chat import ChatFields
from learnloop_gates.cases import Case
from learnloop_gates.model_client import ModelClient, Unanswered, reply_of

CASE = Case(messages=({"role": "user", "content": "hi"},))
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]}
REFUSALS = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    "temperature": "'temperature' does not support 0 with this model.",
}


class Modern(HTTPServer):
    """A model that takes `max_completion_tokens` alone and no temperature."""

    def __init__(self) -> None:
        self.requests = []
        self.refuses = True
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """See Modern."""

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.requests.append(body)
        problem = next((REFUSALS[name] for name in REFUSALS if name in body), None)
        if not server.refuses:
            problem = "max_tokens is not supported: no such account" if len(server.requests) == 1 else "still not"
        answer = json.dumps({"error": {"message": problem}} if problem else ANSWER).encode()
        self.send_response(400 if problem else 200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_) -> None:
        return None


@pytest.fixture
def modern() -> Iterator[Modern]:
    """A server on a real socket."""
    server = Modern()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_fields_that_a_model_refuses_are_left_out_from_then_on(modern: Modern) -> None:
    client = ModelClient(f"http://127.0.0.1:{modern.server_port}", "m")
    assert [client.ask(CASE, most_tokens=9).text for _ in range(2)] == ["hello", "hello"]
    client.close()
    assert [sorted(body.keys() - {"model", "messages"}) for body in modern.requests] == [
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    assert modern.requests[-1]["max_completion_tokens"] == 9


def test_why_a_model_refuses_is_shown_in_its_own_sentence(modern: Modern) -> None:
    modern.refuses = False
    client = ModelClient(f"http://127.0.0.1:{modern.server_port}", "m")
    with pytest.raises(Unanswered, match="no such account"):
        client.ask(CASE)
    client.close()
    assert len(modern.requests) == 2


@pytest.mark.parametrize(
    ("sentence", "again"),
    [
        ("max_tokens must be at most 4096", False),
        ("max_tokens: Extra inputs are not permitted", True),
        ("Unrecognized request argument supplied: max_tokens", True),
        ("this model takes max_completion_tokens", True),
    ],
)
def test_a_value_out_of_bounds_is_not_sent_under_another_name(sentence: str, again: bool) -> None:
    fields = ChatFields()
    body = {"max_tokens": 9, "temperature": 0}
    assert fields.refused(body, sentence) is again
    assert ("max_completion_tokens" in fields.of(body)) is again


def test_a_refusal_in_a_field_of_its_own_is_judged() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert reply_of(json.dumps(body).encode()).text == "I cannot help with that."
