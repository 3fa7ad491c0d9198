"""Logs for Loki: three labels, thirty days, and every line of ours has them."""

import json
import re
from datetime import UTC, datetime

import pytest
import yaml

from learnloop_dataplane.audit import chain as sealer
from learnloop_dataplane.audit.chain import GENESIS, Entry, seal

from ..conftest import Render

LABELS = ["app", "stream", "namespace"]


def files(render: Render, **shipping) -> dict:
    """The two files, read as YAML."""
    made = render({"logs": {"shipping": {"enabled": True, **shipping}}})
    [config_map] = [body for body in made.objects if body["metadata"]["name"].endswith("-log-shipping")]
    return {name: yaml.safe_load(text) for name, text in config_map["data"].items()}


def operators(render: Render) -> list[dict]:
    steps = files(render)["collector.yaml"]["receivers"]["filelog/learnloop"]["operators"]
    return steps


def test_nothing_is_there_unless_it_is_asked_for(render: Render) -> None:
    assert not [body for body in render({}).objects if body["metadata"]["name"].endswith("-log-shipping")]


def test_loki_keeps_thirty_days_and_has_three_labels(render: Render) -> None:
    loki = files(render)["loki.yaml"]
    assert loki["limits_config"]["retention_period"] == "720h"
    assert loki["compactor"]["retention_enabled"] is True
    attributes = loki["limits_config"]["otlp_config"]["resource_attributes"]
    assert attributes["ignore_defaults"] is True
    assert attributes["attributes_config"] == [{"action": "index_label", "attributes": LABELS}]
    assert files(render, retentionDays=7)["loki.yaml"]["limits_config"]["retention_period"] == "168h"


def test_the_collector_reads_the_releases_own_pods_and_sends_to_that_address(render: Render) -> None:
    collector = files(render, endpoint="https://logs.example.com/otlp")["collector.yaml"]
    [pattern] = collector["receivers"]["filelog/learnloop"]["include"]
    assert re.fullmatch(r"/var/log/pods/[a-z0-9-]+_[a-z0-9-]+-\*/\*/\*\.log", pattern)
    assert collector["exporters"]["otlphttp/loki"]["endpoint"] == "https://logs.example.com/otlp"
    [pipeline] = collector["service"]["pipelines"].values()
    assert set(pipeline["receivers"]) == set(collector["receivers"])
    assert set(pipeline["exporters"]) == set(collector["exporters"])
    assert set(pipeline["processors"]) == set(collector["processors"])
    [storage] = collector["extensions"]
    assert collector["service"]["extensions"] == [storage]
    assert collector["receivers"]["filelog/learnloop"]["storage"] == storage, "what was sent is not sent again"


def test_the_three_labels_and_nothing_else_become_attributes_of_the_resource(render: Render) -> None:
    moved = {step["to"]: step["from"] for step in operators(render) if step["type"] == "move"}
    labels = {to: come for to, come in moved.items() if to.startswith("resource.")}
    assert labels == {f"resource.{name}": f"attributes.{name}" for name in LABELS}
    assert files(render)["loki.yaml"]["limits_config"]["discover_service_name"] == []


def test_a_line_of_the_audit_names_all_three_itself(render: Render) -> None:
    entry = Entry("team-a", 1, datetime(2026, 1, 31, tzinfo=UTC), "sa", "model.deployed", "x", "done", {})
    line = json.loads(sealer.line_of(seal(GENESIS, entry)))
    assert {name: line[name] for name in LABELS} == {"app": "learnloop-data", "stream": "audit", "namespace": "team-a"}
    added = {step["field"]: step["if"] for step in operators(render) if step["type"] == "add"}
    assert added == {
        "attributes.stream": 'attributes.stream != "audit"',
        "attributes.app": "attributes.app == nil",
        "attributes.namespace": "attributes.namespace == nil",
    }


@pytest.mark.parametrize("endpoint", ["loki:3100", "https://loki.example.com/otlp/"])
def test_an_address_that_is_none_is_refused(render: Render, endpoint: str) -> None:
    with pytest.raises(Exception, match="endpoint"):
        files(render, endpoint=endpoint)


def test_the_data_plane_is_told_whether_it_copies_the_audit(render: Render) -> None:
    for wish in (True, False):
        pods = render({"logs": {"audit": wish}}).pods()
        flags = [
            item["value"]
            for pod in pods.values()
            for container in pod["spec"]["containers"]
            for item in container.get("env", [])
            if item["name"] == "LEARNLOOP_AUDIT_LOG"
        ]
        assert flags == [str(wish).lower()]
