"""A real cluster with learnloop in it, shared by all end-to-end tests."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator

import pytest

from demo import install, learning
from demo.api import Api, connect
from demo.describe import describe
from demo.narrator import Narrator
from demo.settings import Settings
from testing.real_cluster.cluster_actions import World, own_namespace
from testing.real_cluster.followed_sabotage import FollowedSabotage, followed_sabotage
from testing.real_cluster.playing_agents import Door


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The test that uninstalls everything goes last; nothing here may be cut off by the unit tests' limit."""
    items.sort(key=lambda item: "uninstall" in item.path.name)
    for item in items:
        item.add_marker(pytest.mark.timeout(900))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Contour and Envoy are built and started only when a test of this run needs them, with everything else."""
    if any(item.get_closest_marker("gateway") for item in session.items):
        os.environ["GATEWAY"] = "1"


@pytest.fixture(scope="session")
def narrator() -> Narrator:
    return Narrator()


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings.read()


@pytest.fixture(scope="session")
def api(settings: Settings, narrator: Narrator, pytestconfig: pytest.Config) -> Iterator[Api]:
    """A cluster with learnloop installed from this checkout. Whoever waits for a cold build sees its progress."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        kubectl = install.prepare(settings, narrator)
    with connect(kubectl) as api:
        yield api


@pytest.fixture(scope="session")
def world(api: Api) -> World:
    return World(api)


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, under the restricted pod security standard."""
    said = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"e2e-{said[:40].strip('-')}-{hashlib.sha256(said.encode()).hexdigest()[:4]}"
    yield from own_namespace(api, name)


@pytest.fixture(params=["service", pytest.param("gateway", marks=pytest.mark.gateway)])
def door(request: pytest.FixtureRequest, namespace: str) -> Door:
    """Where the agents of a test knock: whoever routes must give the same guarantees."""
    if request.param == "service":
        return Door()
    host = f"{namespace}.example.com"
    reference = {"name": "gateway", "namespace": "gateway", "requestMirror": "supported"}
    routing = {"mode": "gateway", "gateway": reference, "hostnames": [host]}
    return Door("http://gateway.gateway.svc", host, routing)


@pytest.fixture(scope="session")
def learned(api: Api, narrator: Narrator) -> Iterator[tuple[Settings, learning.Learned]]:
    """The quickstart, followed until its trained policy serves everyone."""
    # A name of its own each time: experience outlives its namespace, and an agent of the same name would go on with it.
    name = f"e2e-quickstart-{secrets.token_hex(3)}"
    settings = Settings(context=None, namespace=name, values=(), keep=False)
    for _ in own_namespace(api, settings.namespace):
        yield settings, learning.watch_it_learn(api, settings, narrator)


@pytest.fixture(scope="session")
def sabotage(
    api: Api, learned: tuple[Settings, learning.Learned], narrator: Narrator, tmp_path_factory: pytest.TempPathFactory
) -> FollowedSabotage:
    """A sabotaged model, rolled out once and taken back, with a console open beside it."""
    settings, result = learned
    return followed_sabotage(api, settings, result, narrator, tmp_path_factory.mktemp("console"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test says what the cluster looked like."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and "api" in getattr(item, "funcargs", {}):
        report.sections.append(("cluster", describe(item.funcargs["api"])))  # type: ignore[attr-defined]
