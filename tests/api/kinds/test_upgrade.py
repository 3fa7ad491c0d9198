"""Objects that the version before stored live on under the definitions of now, and under those of a v1beta1 to come.

What was stored is in before.json.xz: definitions and objects, with statuses, as hack/keep-release has written them. An
etcd and a kube-apiserver of this module's own have the old definitions first.
"""

import copy
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = [sys.executable, str(ROOT / "hack" / "cluster")]
BEFORE = json.loads(lzma.decompress((Path(__file__).parent / "before.json.xz").read_bytes()))
NOW = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
OLD, NEW = "v1alpha1", "v1beta1"
SECONDS = 120.0

Object = dict[str, Any]


@pytest.fixture(scope="module")
def old(kube: Any) -> Iterator[Any]:
    """An API server with the definitions of before, and all objects of before in it."""
    folder = Path(tempfile.mkdtemp(prefix="learnloop-upgrade-"))
    arguments = ["--control-plane-only", "--state", str(folder)]
    started = subprocess.run([*CLUSTER, "up", *arguments], capture_output=True, text=True, timeout=300)
    try:
        assert started.returncode == 0, started.stderr
        server = type(kube)(Path(started.stdout.strip().splitlines()[-1]))
        apply_definitions(server, BEFORE["definitions"])
        for item in placed():
            server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": item["metadata"]["namespace"]}})
            stored = server.apply({key: value for key, value in item.items() if key != "status"}, manager="author")
            if "status" in item:
                told = {**address(stored), "status": item["status"]}
                server.apply(told, manager="operator", subresource="status")
        yield server
    finally:
        subprocess.run([*CLUSTER, "down", *arguments], capture_output=True, check=False)


@pytest.fixture(scope="module")
def upgraded(old: Any) -> tuple[Any, dict[str, Object]]:
    """The server with the definitions of now, and what it had answered before."""
    known = {item["metadata"]["namespace"]: old.get(item) for item in placed()}
    apply_definitions(old, NOW)
    return old, known


def placed() -> list[Object]:
    """The objects of before, each in a namespace of its own."""
    found = []
    for number, item in enumerate(BEFORE["objects"]):
        kept = ("name", "labels", "annotations")
        metadata = {key: item["metadata"][key] for key in kept if key in item["metadata"]}
        found.append({**item, "metadata": {**metadata, "namespace": f"was-{number}"}})
    return found


def address(item: Object) -> Object:
    """What names an object."""
    metadata = {key: item["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata}


def apply_definitions(server: Any, definitions: list[Object]) -> None:
    """As Helm does it; returns when the API server serves by them."""
    for definition in definitions:
        server.apply(definition, manager="helm", force=True)
    wait(lambda: all(serves(server, definition) for definition in definitions), "the definitions are not served")


def serves(server: Any, definition: Object) -> bool:
    """Every served version of the kind answers, and the definition is established."""
    spec, live = definition["spec"], server.get(definition)
    conditions = {item["type"]: item["status"] for item in live.get("status", {}).get("conditions", ())}
    if conditions.get("Established") != "True":
        return False
    for version in spec["versions"]:
        try:
            server.call("GET", f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}", {"limit": "1"})
        except server.Refused:
            return False
    return True


def wait(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Fields and values of `before` that `after` has not."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield f"{path}.{key}"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


def content(item: Object) -> Object:
    return {key: item[key] for key in ("spec", "status") if key in item}


def test_there_is_something_of_every_kind_with_a_status(old: Any) -> None:
    kinds = {item["spec"]["names"]["kind"] for item in BEFORE["definitions"]}
    assert {item["kind"] for item in placed() if old.get(item).get("status")} == kinds
    assert len(placed()) > 50


def test_no_field_of_what_was_stored_is_lost(upgraded: tuple[Any, dict[str, Object]]) -> None:
    server, known = upgraded
    for item in placed():
        was = content(known[item["metadata"]["namespace"]])
        assert list(lost(was, content(server.get(item)))) == [], (item["kind"], item["metadata"])


def test_what_was_stored_takes_changes_of_spec_status_and_labels(upgraded: tuple[Any, dict[str, Object]]) -> None:
    """A changed object is validated as a whole, by the rules of now."""
    server, known = upgraded
    for item in placed():
        was = known[item["metadata"]["namespace"]]
        server.merge(item, {"metadata": {"labels": {"upgraded": "yes"}}})
        if was.get("status"):
            server.merge(item, {"status": {"observedGeneration": 7}}, subresource="status")
        if "suspend" in was["spec"]:
            server.merge(item, {"spec": {"suspend": not was["spec"]["suspend"]}})
            server.merge(item, {"spec": {"suspend": was["spec"]["suspend"]}})
        was = copy.deepcopy(content(was))
        was.get("status", {}).pop("observedGeneration", None)
        assert list(lost(was, content(server.get(item)))) == [], (item["kind"], item["metadata"])


def test_what_people_keep_in_git_is_accepted_as_it_stands(upgraded: tuple[Any, dict[str, Object]]) -> None:
    server, _ = upgraded
    for item in placed():
        written = {key: value for key, value in item.items() if key != "status"}
        place = f"new-{item['metadata']['namespace']}"
        server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
        server.create({**written, "metadata": {**written["metadata"], "namespace": place}}, dry=True)


def test_a_next_version_serves_and_stores_the_same_objects_and_the_old_one_goes_on(
    upgraded: tuple[Any, dict[str, Object]],
) -> None:
    """Conversion None: both versions have one schema. docs/how-to/upgrade.md has the order of these acts."""
    server, _ = upgraded
    before = {item["metadata"]["namespace"]: server.get(item) for item in placed()}
    apply_definitions(server, [two_versions(definition, stored=OLD) for definition in NOW])
    for item in placed():
        newer = server.get(as_version(item, NEW))
        assert newer["apiVersion"] == f"learnloop.dev/{NEW}"
        assert content(newer) == content(before[item["metadata"]["namespace"]])
    apply_definitions(server, [two_versions(definition, stored=NEW) for definition in NOW])
    for item in placed():
        server.merge(as_version(item, NEW), {"metadata": {"labels": {"stored": NEW}}})
        assert content(server.get(item)) == content(before[item["metadata"]["namespace"]]), "the old version reads it"
    for definition in NOW:
        assert server.get(definition)["status"]["storedVersions"] == [OLD, NEW]
        server.merge(definition, {"status": {"storedVersions": [NEW]}}, subresource="status")
    for item in placed():  # an operator of before goes on with the old version
        if before[item["metadata"]["namespace"]].get("status"):
            server.merge(item, {"status": {"observedGeneration": 9}}, subresource="status")
            assert server.get(as_version(item, NEW))["status"]["observedGeneration"] == 9
    refused = two_versions(NOW[0], stored=NEW)
    refused["spec"]["versions"] = [version for version in refused["spec"]["versions"] if version["name"] == OLD]
    refused["spec"]["versions"][0]["storage"] = True
    message = server.refusal(lambda: server.apply(refused, manager="helm", force=True))
    assert f"removes {NEW} from status.storedVersions" in message, "nobody loses objects by going back"


def two_versions(definition: Object, *, stored: str) -> Object:
    """The definition with a v1beta1 of the same schema beside."""
    changed = copy.deepcopy(definition)
    (version,) = changed["spec"]["versions"]
    changed["spec"]["versions"] = [{**version, "name": name, "storage": name == stored} for name in (OLD, NEW)]
    changed["spec"]["conversion"] = {"strategy": "None"}
    return changed


def as_version(item: Object, version: str) -> Object:
    return {**item, "apiVersion": f"learnloop.dev/{version}"}
