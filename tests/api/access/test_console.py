"""The console before a real API server: it shows and does what its caller may, and tells each change."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from learnloop_api.names import API_VERSION, GROUP
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.console.server import open_console
from learnloop_operator.cli.data_plane_access import DataPlaneAccess
from testing.browsers.console_server import Browser
from testing.proxies.tcp_line import TcpLine

from .test_audit_command import kubeconfig

KINDS = ["learningagents", "trainingjobs", "rewardpolicies", "modeldeployments", "memoryservices"]
SECONDS = 30.0
ROLLOUTS = 500
Opened = tuple[Browser, dict[str, Any]]


def rollout(namespace: str, name: str = "walker") -> dict:
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": "uniform://discrete/2?observations=4"}},
    }


def granted(kube, namespace: str, account: str, verbs: list[str], kinds: list[str]) -> None:
    """A service account with a Role of its own in the namespace."""
    metadata = {"name": account, "namespace": namespace}
    if verbs:
        rule = {"apiGroups": [GROUP], "resources": kinds, "verbs": verbs}
        api = "rbac.authorization.k8s.io"
        kube.create({"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
        reference = {"apiGroup": api, "kind": "Role", "name": account}
        subject = {"kind": "ServiceAccount", **metadata}
        binding = {"roleRef": reference, "subjects": [subject], "metadata": metadata}
        kube.create({"apiVersion": f"{api}/v1", "kind": "RoleBinding", **binding})
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


@pytest.fixture
def as_account(api_server: Path, kube, kubectl, namespace: str, tmp_path: Path) -> Callable[..., Path]:
    """A kubeconfig of somebody with these rights in the namespace."""

    def make(verbs: list[str], kinds: list[str] = KINDS) -> Path:
        granted(kube, namespace, "reader", verbs, kinds)
        token = kubectl("create", "token", "reader", "-n", namespace).strip()
        return kubeconfig(api_server, tmp_path / "reader.yaml", token)

    return make


@pytest.fixture
def opened(namespace: str) -> Iterator[Callable[..., Opened]]:
    """A running console of a kubeconfig, entered by a browser, and what it says of itself."""
    with ExitStack() as stack:

        def start(config: Path, *arguments: str) -> Opened:
            cluster = KubernetesCluster(str(config), None, namespace)
            server, console, watch = open_console(cluster, DataPlaneAccess, *arguments)
            watch.start()
            watch.wait_for_lists(SECONDS)
            threading.Thread(target=server.serve, args=(console,), daemon=True).start()
            for end in (console.log.wake, server.stop, watch.stop):
                stack.callback(end)
            browser = Browser(server.port)
            assert browser.enter(console.gate.token) == 303
            status, _, about = browser.ask("GET", "/about")
            assert status == 200
            return browser, json.loads(about)

        yield start


def test_changes_of_all_namespaces_are_told(api_server, kube, namespace, opened):
    kube.create(rollout(namespace))
    browser, about = opened(api_server)
    assert (about["namespaces"], about["problems"]) == (None, {})
    events = browser.stream()
    name, objects = next(events)
    assert name == "snapshot"
    assert (namespace, "walker") in {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in objects}
    began = time.monotonic()
    kube.merge(rollout(namespace), {"status": {"phase": "Progressing", "verdict": "holding at 10 %"}}, "status")
    for _, changes in events:
        own = [item for item in changes if item["namespace"] == namespace]
        if own and own[0]["object"]["status"].get("verdict") == "holding at 10 %":
            break
    print(f"\na status that was written arrived after {time.monotonic() - began:.3f} s")
    kube.delete(rollout(namespace))
    assert any(item["object"] is None for item in next(events)[1])


@pytest.fixture
def line(api_server: Path, tmp_path: Path) -> Iterator[tuple[TcpLine, Path]]:
    """A way to the API server that can be cut, and a kubeconfig that goes it."""
    body = yaml.safe_load(api_server.read_text())
    address = urlsplit(body["clusters"][0]["cluster"]["server"])
    between = TcpLine(address.hostname or "", address.port or 443)
    body["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{between.port}"
    config = tmp_path / "line.yaml"
    config.write_text(yaml.safe_dump(body))
    yield between, config
    between.speak()
    between.cut()


@pytest.mark.parametrize("way", ["silent", "refused"])
def test_with_the_api_server_away_pages_are_told_so_and_afterwards_what_changed_of_five_hundred_rollouts(
    way: str, line: tuple[TcpLine, Path], kube, namespace: str, opened: Callable[..., Opened]
) -> None:
    between, config = line
    for number in range(ROLLOUTS):
        kube.create(rollout(namespace, f"r{number:03}"))
    browser, _ = opened(config, namespace)
    events = browser.stream()
    shown = {item["metadata"]["name"]: item for item in next(events)[1] if item["plural"] == "modeldeployments"}
    assert len(shown) == ROLLOUTS
    between.silence() if way == "silent" else between.cut()
    began = time.monotonic()
    name, data = next(events)
    assert name == "cluster"
    assert data["away"].startswith("the API server does not answer")
    print(f"\n{way}: told after {time.monotonic() - began:.1f} s; ", end="")
    assert next(browser.stream())[0] == "snapshot", "a page that is opened now shows what was known last"
    kube.merge(rollout(namespace, "r001"), {"status": {"phase": "Progressing", "verdict": "at 10 %"}}, "status")
    kube.delete(rollout(namespace, "r002"))
    kube.create(rollout(namespace, "new"))
    between.speak() if way == "silent" else between.mend()
    began, back, objects = time.monotonic(), False, dict[str, Any]()
    for name, data in events:
        if name == "cluster":
            # Each kind is watched by itself and may name its own reason until it is listed.
            back = data["away"] == ""
        else:
            objects |= {item["name"]: item["object"] for item in data if item["plural"] == "modeldeployments"}
        if back and objects.keys() >= {"r001", "r002", "new"}:
            break
    print(f"what had changed, {time.monotonic() - began:.1f} s after it came back")
    assert objects.keys() == {"r001", "r002", "new"}, "no other object is sent again"
    assert objects["r001"]["status"]["verdict"] == "at 10 %"
    assert objects["r002"] is None


def test_a_user_of_one_namespace_sees_that_one_without_errors(kube, namespace, as_account, opened):
    kube.create(rollout(namespace))
    browser, about = opened(as_account(["get", "list", "watch"]))
    assert (about["namespaces"], about["problems"]) == ([namespace], {})
    assert about["message"] == "You may read one namespace of the cluster; --namespaces names others."
    assert about["user"] == f"system:serviceaccount:{namespace}:reader"
    objects = next(browser.stream())[1]
    assert {item["metadata"]["namespace"] for item in objects} == {namespace}
    rights = json.loads(browser.ask("GET", f"/rights?namespace={namespace}")[2])
    assert not any(rights.values()), "who may read only gets no buttons"


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(kube, namespace, as_account, opened):
    kube.create(rollout(namespace))
    browser, about = opened(as_account(["get", "list", "watch"], ["modeldeployments"]))
    assert sorted(about["problems"]) == sorted(f"{kind} in {namespace}" for kind in KINDS if kind != "modeldeployments")
    assert "cannot list resource" in next(iter(about["problems"].values()))
    assert [item["plural"] for item in next(browser.stream())[1]] == ["modeldeployments"]


def test_an_order_is_written_with_the_callers_own_rights_and_name(kube, namespace, as_account, opened):
    kube.create(rollout(namespace))
    canary = {"revision": "3f9a2c81", "uri": "learnloop://x/1"}
    kube.merge(rollout(namespace), {"status": {"phase": "Progressing", "canary": canary}}, "status")
    browser, _ = opened(as_account(["get", "list", "watch", "patch"]))
    assert json.loads(browser.ask("GET", f"/rights?namespace={namespace}")[2])["pause"] is True
    order = {"namespace": namespace, "verb": "pause", "name": "walker"}
    status, _, answer = browser.ask("POST", "/orders", order)
    assert (status, json.loads(answer)["message"].startswith("3f9a2c81 holds")) == (200, True), answer
    value = kube.get(rollout(namespace))["metadata"]["annotations"]["learnloop.dev/pause"]
    assert value.startswith("3f9a2c81 at ")
    assert value.endswith(f" by system:serviceaccount:{namespace}:reader")
    elsewhere = {**order, "namespace": "default"}
    status, _, answer = browser.ask("POST", "/orders", elsewhere)
    assert (status, "cannot get resource" in json.loads(answer)["error"]) == (400, True), answer


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_an_address_that_works_once_and_ends_quietly(api_server, namespace, ending):
    arguments = ["--kubeconfig", str(api_server), "-n", namespace, "console", "--namespaces", namespace]
    program = [sys.executable, "-m", "learnloop_operator.cli.main", *arguments]
    # As a shell starts it in the background, with Ctrl-C ignored.
    ignored = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=ignored
    ) as process:
        try:
            address = process.stdout.readline().strip()
            port, token = int(address.split(":")[2].split("/")[0]), address.partition("token=")[2]
            browser = Browser(port)
            assert (browser.enter(token), Browser(port).enter(token)) == (303, 403)
            assert b"<title>learnloop</title>" in browser.ask("GET", "/")[2]
        finally:
            process.send_signal(ending)
            _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
