"""OpenAI's API at a model gateway: requests from its own OpenAPI document, and its own clients for Python and Node."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.judges.cases import Suite, finish
from bench.judges.documents import Documents
from bench.judges.openai_python import client_suite, speak
from bench.judges.schema_requests import explore
from testing.language.gateway_process import GatewayProcess, write_routing
from testing.language.scripted_server import ScriptedServer
from testing.language.tiny_chat_folder import write_folder
from testing.servers.policy_servers import STABLE
from testing.servers.ports import held_port

DOCUMENT = Documents(
    "openai/openai-openapi",
    "f85dbe223d40e1a31cba812ab2d755c7e98a92a3",
    {"openapi.json": "bbfd19abcde0e7412da99378deb2a959ccdd3a812f97c9e35901921e8e973f9a"},
)
SERVED = {"/chat/completions": "post", "/models": "get", "/models/{model}": "get"}
NODE_PACKAGE, CANARY_PACKAGE = "openai@7.59.0", "compatcanary@0.2.2"
CANARY_REFUSED = {
    "chat.tool_call": (400, "strict"),
    "chat.structured_output": (400, "response_format"),
    "responses.basic": (404, "responses"),
    "responses.streaming": (404, "responses"),
}
"""CompatCanary's probes of what no model server here can obey: the status, and a word of the refusal."""
BOUNDS = ("--phases", "examples,coverage,fuzzing", "--max-examples", "300")
SETTINGS = """
[parameters]
"path.model" = "cart"

# What no model server here can obey is refused by name, and unknown fields of messages are ignored, as OpenAI does.
[[operations]]
include-path = "/chat/completions"
checks.positive_data_acceptance.enabled = false
checks.negative_data_rejection.enabled = false
"""


def main() -> int:
    """1 when a suite has failures."""
    with tempfile.TemporaryDirectory() as text, gateway(Path(text)) as (url, server):
        suites = [client_suite(f"{url}/v1", server), *_node(f"{url}/v1")]
        suites.append(
            explore("schemathesis, OpenAI's document", document(), f"{url}/v1", Path(text), SETTINGS, *BOUNDS)
        )
    return finish(*suites)


def document() -> dict[str, Any]:
    """OpenAI's own: the routes that a gateway serves, and every status that it does not list as its ErrorResponse."""
    written: dict[str, Any] = json.loads((DOCUMENT.folder() / "openapi.json").read_text(encoding="utf-8"))
    written["paths"] = {path: {verb: written["paths"][path][verb]} for path, verb in SERVED.items()}
    written.pop("security", None)
    schema = {"$ref": "#/components/schemas/ErrorResponse"}
    for path, verb in SERVED.items():
        refused = {"description": "refused", "content": {"application/json": {"schema": schema}}}
        written["paths"][path][verb]["responses"]["default"] = refused
        written["paths"][path][verb].pop("security", None)
    return written


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[str, ScriptedServer]]:
    """The address of a gateway process, and the model server behind it."""
    write_folder(folder / "base")
    with ExitStack() as stack:
        server = stack.enter_context(ScriptedServer(folder / "base", speak))
        port = stack.enter_context(held_port())
        routing = write_routing(folder, (STABLE, "stable", 100, f"http://127.0.0.1:{port}"))
        upstream = {"kind": "llama.cpp", "url": server.url, "model": "base"}
        process = GatewayProcess(folder / "arm", folder / "base", port, STABLE, upstream, routing=routing)
        stack.callback(process.stop)
        yield process.start().url, server


def _node(url: str) -> list[Suite]:
    """OpenAI's client for Node and CompatCanary, where there is a node."""
    if shutil.which("npm") is None:
        print("openai, Node, and CompatCanary: no npm here, so they are left out", file=sys.stderr)
        return []
    script = shutil.copy(Path(__file__).with_name("openai_node.mjs"), _installed(NODE_PACKAGE))
    done = subprocess.run(["node", script, url], stdout=subprocess.PIPE, text=True, timeout=300)
    return [*(Suite(**suite) for suite in json.loads(done.stdout.splitlines()[-1])), _canary(url)]


def _canary(url: str) -> Suite:
    """Each probe passes, or is refused by name as OpenAI's errors are."""
    program = _installed(CANARY_PACKAGE) / "node_modules" / "compatcanary" / "src" / "cli.js"
    command = ["node", str(program), "scan", "--base-url", url, "--model", "cart", "--format", "json"]
    done = subprocess.run([*command, "--fail-on", "never"], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    suite = Suite("CompatCanary, modern profile", CANARY_PACKAGE.rpartition("@")[2])
    for probe in json.loads(done.stdout)["results"]:
        with suite.case(probe["name"]):
            if (refused := CANARY_REFUSED.get(probe["id"])) is None:
                assert probe["status"] == "pass", probe
            else:
                answer = json.loads(probe["error"]["responseBody"])["error"]
                assert probe["error"]["httpStatus"] == refused[0], probe
                assert refused[1] in answer["message"], probe
                assert sorted(answer) == ["code", "message", "param", "type"], probe
    return suite


def _installed(package: str) -> Path:
    """A folder with the package and what it needs, once for each machine."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "learnloop" / "judges" / package
    if not (folder / "node_modules" / package.rpartition("@")[0]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(folder), package]
        subprocess.run(install, check=True, stdout=sys.stderr, timeout=600)
    return folder


if __name__ == "__main__":
    sys.exit(main())
