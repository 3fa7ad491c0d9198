"""A caller's input is bounded: a number without one meets a column that has."""

from collections.abc import Iterator

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from learnloop_api.wire.base import MOST
from learnloop_api.wire.training import Heartbeat
from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.config import Config

QUANTITIES = {"Resources.requests", "Resources.limits"}
"""Kubernetes' own, judged by the API server that they are handed on to."""


def requested(document: dict) -> Iterator[tuple[str, dict]]:
    """Every schema that a request is held against, with where it stands."""
    paths: set[str] = set()

    def walk(schema, where: str) -> Iterator[tuple[str, dict]]:
        if not isinstance(schema, dict):
            return
        if reference := schema.get("$ref"):
            name = reference.rsplit("/", 1)[-1]
            if name not in paths:
                paths.add(name)
                yield from walk(document["components"]["schemas"][name], name)
            return
        yield where, schema
        for name, part in schema.get("properties", {}).items():
            yield from walk(part, f"{where}.{name}")
        for part in (schema.get("items"), schema.get("additionalProperties")):
            yield from walk(part, where)
        for kind in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for part in schema.get(kind, ()):
                yield from walk(part, where)

    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                yield from walk(parameter["schema"], f"{method} {path} {parameter['name']}")
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield from walk(content.get("schema"), f"{method} {path}")


def test_every_whole_number_a_caller_may_send_has_a_largest_value() -> None:
    app = create_app(Config(dsn="postgresql://data/plane", artifacts="file:///artifacts", auth="none"))
    numbers = [(where, schema) for where, schema in requested(app.openapi()) if schema.get("type") == "integer"]
    endless = {where for where, schema in numbers if not {"maximum", "exclusiveMaximum", "enum", "const"} & set(schema)}
    assert len(numbers) > 30
    assert endless <= QUANTITIES, f"set le: {sorted(endless - QUANTITIES)}"


@pytest.mark.parametrize(("field", "value"), [("attempt", 2**31), ("step", MOST + 1), ("world_size", 10**20)])
def test_a_heartbeat_of_impossible_numbers_is_refused_by_the_field(field: str, value: int) -> None:
    beat = {"job": "walk-1", "attempt": 0, "phase": "training", "step": 1, "total_steps": 2, "world_size": 1}
    rest = {"steps_per_second": 1.0, "at": "2026-01-31T12:00:00Z"}
    Heartbeat.model_validate(beat | rest)
    with pytest.raises(ValidationError, match=field):
        Heartbeat.model_validate(beat | rest | {field: value})


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_a_compressed_body_is_refused_as_such(encoding: str) -> None:
    app = create_app(Config(dsn="postgresql://data/plane", artifacts="file:///artifacts", auth="none"))
    answer = TestClient(app).post("/api/v1/trajectories", content=b"\x1f\x8b", headers={"Content-Encoding": encoding})
    assert answer.status_code == 415
    assert "send the body without Content-Encoding" in answer.text
