"""Run by the peer's own python: FILE EPISODES. Starts TensorZero's gateway from its wheel, asks it, and prints JSON."""

import json
import re
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

AGAIN = 200
TOKEN = "caller-token"


class Server(ThreadingHTTPServer):
    """Answers with its name; `away`: it hangs up."""

    daemon_threads = True

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.away, self.keys = name, False, list[str]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/"


class Handler(BaseHTTPRequestHandler):
    """OpenAI's chat completions, as little of them as it takes."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.away:
            self.close_connection = True
            self.connection.close()
            return
        self.server.keys.append(self.headers.get("authorization", ""))
        message = {"role": "assistant", "content": self.server.name}
        body = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def main(file: Path, episodes: int) -> None:
    """Two servers in the places of learnloop and Ollama, and the gateway before them."""
    wheel = import_module("tensorzero.tensorzero")
    learnloop, ollama = Server("learnloop"), Server("ollama")
    text = re.sub(r'http://helper[^"]*', learnloop.base, file.read_text())
    file.write_text(re.sub(r'http://ollama[^"]*', ollama.base, text))
    gateway = wheel._start_http_gateway(
        config_file=str(file), clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
    )

    def ask(episode: str = "") -> tuple[str, str, str]:
        body: dict[str, Any] = {
            "model": "tensorzero::function_name::helper",
            "messages": [{"role": "user", "content": "hello"}],
            "tensorzero::credentials": {"learnloop_token": TOKEN},
        }
        if episode:
            body["tensorzero::episode_id"] = episode
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{gateway.base_url}/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            said = json.loads(answer.read())
        return said["episode_id"], said["model"].rsplit("::", 1)[1], said["choices"][0]["message"]["content"]

    first = [ask() for _ in range(episodes)]
    again = [ask(episode)[1] == variant for episode, variant, _ in first[:AGAIN]]
    learnloop.away = True
    alone = [ask()[2] for _ in range(AGAIN)]
    found = {
        "episodes": episodes,
        "canary": sum(variant == "arm-5e6f7a8b" for _, variant, _ in first),
        "asked_again": len(again),
        "kept": sum(again),
        "reached_learnloop": len(learnloop.keys),
        "with_token": learnloop.keys.count(f"Bearer {TOKEN}"),
        "asked_without_learnloop": len(alone),
        "by_fallback": alone.count("ollama"),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
