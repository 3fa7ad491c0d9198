"""A real cluster with learnloop in it, shared by all end-to-end tests and by the processes that run them."""

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from demo import install, learning
from demo.api import Api, connect
from demo.describe import describe
from demo.narrator import Narrator
from demo.settings import Settings
from testing.real_cluster.cluster_actions import Rig, own_namespace
from testing.real_cluster.playing_agents import Door, gateway_door

PATIENCE_SECONDS = 900
"""For one test, without its wait for others."""
IN_NAMES = {"GATEWAY": "gateway", "TRAINER": "trainjob"}
"""Parts of the cluster, and a word in the names of tests that need them. Who makes it sees those names alone."""
WITH_THE_QUICKSTART = ("test_faults_in_a_canary", "test_quickstart")
"""Files whose tests follow the agent of `learned`."""


class InOneProcess(LoadScopeScheduling):  # the package has no types
    """Tests that share a fixture of the session or of their module stay together; each other one goes by itself."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "quickstart" if Path(file).stem in WITH_THE_QUICKSTART else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> InOneProcess:
    """Instead of the one that --dist names."""
    return InOneProcess(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that end shared parts go late; nothing here may be cut off by the limit of unit tests."""
    items.sort(key=_disturbs)
    for item in items:
        item.add_marker(pytest.mark.timeout(PATIENCE_SECONDS))


def _disturbs(item: pytest.Item) -> bool:
    return item.get_closest_marker("disturbs") is not None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that disturbs has the cluster for itself; the others share it."""
    with _locked(_shared_folder(item.config) / "cluster.lock", alone=_disturbs(item)):
        yield


@contextmanager
def _locked(path: Path, alone: bool) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _shared_folder(config: pytest.Config) -> Path:
    """One folder for all processes of this run, as pytest-xdist documents it."""
    base: Path = config._tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def pytest_collection_finish(session: pytest.Session) -> None:
    """Contour and Envoy, or Trainer and JobSet, are built only when a test of this run needs them."""
    for needed in ("gateway", "trainer"):
        if any(item.get_closest_marker(needed) for item in session.items):
            os.environ[needed.upper()] = "1"


@pytest.fixture(scope="session")
def narrator() -> Narrator:
    return Narrator()


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings.read()


@pytest.fixture(scope="session")
def api(settings: Settings, narrator: Narrator, pytestconfig: pytest.Config) -> Iterator[Api]:
    """A cluster with learnloop installed from this checkout."""
    with connect(_installed(settings, narrator, pytestconfig)) as api:
        yield api


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids: list[str]) -> None:
    """The process that hands out tests makes the cluster, for its output alone is seen; the others find it made."""
    named = {word for identity in ids for word in re.split("[^a-z]", identity)}
    os.environ.update({needed: "1" for needed, parameter in IN_NAMES.items() if parameter in named})
    _installed(Settings.read(), Narrator(), node.config)


def _installed(settings: Settings, narrator: Narrator, config: pytest.Config) -> list[str]:
    """The kubectl command that reaches the cluster. Who asks first makes it, and sees the progress of a cold build."""
    done = _shared_folder(config) / "installed.json"
    if not done.exists():
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            kubectl = install.prepare(settings, narrator)
        done.write_text(json.dumps({"kubectl": kubectl, "kubeconfig": os.environ.get("KUBECONFIG")}))
    endpoints = json.loads(done.read_text())
    if endpoints["kubeconfig"]:
        os.environ["KUBECONFIG"] = endpoints["kubeconfig"]
    return list(endpoints["kubectl"])


@pytest.fixture(scope="session")
def rig(api: Api) -> Rig:
    return Rig(api)


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, under the restricted pod security standard."""
    slug = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"e2e-{slug[:40].strip('-')}-{hashlib.sha256(slug.encode()).hexdigest()[:4]}"
    yield from own_namespace(api, name)


@pytest.fixture
def doors(api: Api, namespace: str) -> Iterator[dict[str, Door]]:
    """The doors of agents, by namespace: every router must give the same guarantees."""
    for behind in own_namespace(api, f"{namespace}-gateway"):
        yield {namespace: Door(), behind: gateway_door(behind)}


@pytest.fixture(scope="session")
def learned(api: Api, narrator: Narrator) -> Iterator[tuple[Settings, learning.Learned]]:
    """The quickstart, followed until its trained policy serves everyone."""
    # A name of its own each time: experience outlives its namespace, and an agent of the same name would go on with it.
    name = f"e2e-quickstart-{secrets.token_hex(3)}"
    settings = Settings(context=None, namespace=name, values=(), keep=False)
    for _ in own_namespace(api, settings.namespace):
        yield settings, learning.watch_it_learn(api, settings, narrator)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test says what the cluster looked like."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and "api" in getattr(item, "funcargs", {}):
        report.sections.append(("cluster", describe(item.funcargs["api"])))
