"""The SDK as an agent installs it: a small wheel, and the README's five lines against a data plane."""

import json
import textwrap
from pathlib import Path

import httpx
import pytest

from testing.clean_venv import CleanVenv
from testing.servers import data_plane_server
from testing.servers.policy_servers import LiveServer, table
from toolkit.places import REPOSITORY

MOST_DIRECT = 3
ALLOWED = {"aiohappyeyeballs", "aiohttp", "aiosignal", "annotated_types", "attr", "frozenlist", "idna", "learnloop_api",
           "learnloop_common", "learnloop_sdk", "multidict", "propcache", "pydantic", "pydantic_core",
           "typing_extensions", "typing_inspection", "yarl"}  # fmt: skip
IMPORTED = """
import importlib.metadata, json, sys
before = set(sys.modules)
import learnloop_sdk
print(json.dumps([
    [need for need in importlib.metadata.requires("learnloop-sdk")],
    [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", None) or "")],
]))
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> CleanVenv:
    return CleanVenv.of("learnloop-sdk", tmp_path_factory.mktemp("sdk"))


def test_the_sdk_requires_and_imports_little(venv: CleanVenv) -> None:
    direct, modules = json.loads(venv.run("python", "-c", IMPORTED))
    assert len(direct) <= MOST_DIRECT, direct
    top = {name.partition(".")[0] for name in modules if not name.startswith("_")}
    assert top <= ALLOWED, sorted(top - ALLOWED)
    venv.import_all("learnloop_sdk", "learnloop_api", "learnloop_common")


def test_the_five_lines_of_the_readme_play_and_record_an_episode(venv: CleanVenv, tmp_path: Path) -> None:
    text = (REPOSITORY / "README.md").read_text().partition("five lines of the SDK")[2]
    lines = text.partition("```python\n")[2].partition("```")[0]
    program = f"""
import asyncio
from learnloop_sdk import Learnloop

observation = [0.0, 0.1, 0.2, 0.3]

async def main():
{textwrap.indent(lines, "    ")}
asyncio.run(main())
"""
    server = LiveServer().start()
    server.route(table((server.revision, "stable", 100, server.url)))
    with data_plane_server.postgres() as dsn, data_plane_server.listening(dsn, tmp_path / "artifacts") as url:
        addresses = {"LEARNLOOP_ENDPOINT": server.url, "LEARNLOOP_DATA_URL": url, "LEARNLOOP_NAMESPACE": "default"}
        venv.run("python", "-c", program, **addresses)
        query = {"agent": "balancer", "limit": "5"}
        headers = {"x-learnloop-namespace": "default"}
        page = httpx.get(f"{url}/api/v1/experience/trajectories", params=query, headers=headers).json()
    server.stop()
    assert [(len(one["steps"]), one["success"]) for one in page["trajectories"]] == [(1, True)]
