"""Schemas that manifests are compared with: made of published definitions, and as strict as an API server."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testing.manifests.json_schemas import METADATA, PREFIX, Kind, of_definition, of_kubernetes

TEXT = {"type": "string"}
HEAD = {"apiVersion": TEXT, "kind": TEXT}
CORE: dict[str, Any] = {
    "components": {
        "schemas": {
            METADATA: {"type": "object", "properties": {"name": {**TEXT, "description": "Which."}}},
            "Unused": {"type": "object"},
            "Spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}}},
            "Thing": {
                "type": "object",
                "properties": {
                    **HEAD,
                    "metadata": {"allOf": [{"$ref": PREFIX + METADATA}], "default": {}},
                    "spec": {"$ref": f"{PREFIX}Spec"},
                    "labels": {"type": "object", "additionalProperties": TEXT},
                },
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
            },
            "Options": {
                "type": "object",
                "properties": HEAD,
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Options"}],
            },
        }
    }
}


def definition(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"metadata": {"type": "object"}, **properties}}
    version = {"name": "v2", "served": True, "schema": {"openAPIV3Schema": schema}}
    old = {"name": "v1", "served": False, "schema": {"openAPIV3Schema": {}}}
    return {"spec": {"group": "example.com", "names": {"kind": "Own"}, "versions": [old, version]}}


def refusals(schema: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(schema).iter_errors(manifest)]


def own(**properties: Any) -> dict[str, Any]:
    ((kind, schema),) = of_definition(definition(**properties), CORE)
    assert kind == Kind("example.com", "v2", "Own"), "what is not served is left out"
    return schema


def test_a_kind_has_what_it_refers_to_and_no_more() -> None:
    ((kind, schema),) = of_kubernetes(CORE)
    assert kind == Kind("", "v1", "Thing")
    assert set(schema["components"]["schemas"]) == {METADATA, "Spec"}


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"metadata": {"name": "x"}, "spec": {"size": 1}, "labels": {"any": "thing"}}, ""),
        ({"sepc": {}}, "'sepc' was unexpected"),
        ({"metadata": {"nmae": "x"}}, "'nmae' was unexpected"),
        ({"spec": {"size": 1, "sise": 2}}, "'sise' was unexpected"),
        ({"spec": {}}, "'size' is a required property"),
        ({"labels": {"any": 1}}, "1 is not of type 'string'"),
    ],
)
def test_what_a_kind_does_not_have_is_refused(manifest: dict[str, Any], said: str) -> None:
    ((_, schema),) = of_kubernetes(CORE)
    found = refusals(schema, manifest)
    assert found == [] if not said else said in found[0]


def test_a_custom_kind_has_the_metadata_of_every_other() -> None:
    schema = own(spec={"type": "object", "properties": {"size": {"type": "integer"}}})
    assert not refusals(schema, {"apiVersion": "example.com/v2", "kind": "Own", "metadata": {"name": "x"}})
    assert refusals(schema, {"metadata": {"nmae": "x"}})
    assert refusals(schema, {"spec": {"sise": 1}})


def test_a_definition_may_keep_what_it_does_not_know() -> None:
    kept = {"type": "object", "properties": {"a": TEXT}, "x-kubernetes-preserve-unknown-fields": True}
    assert not refusals(own(spec=kept), {"spec": {"b": 1}})
    assert refusals(own(spec=kept), {"spec": {"a": 1}})


def test_a_number_or_a_text_a_null_and_an_alternative_are_taken() -> None:
    schema = own(
        port={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, TEXT]},
        mode={"type": "string", "enum": ["a"], "nullable": True},
        either={
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT},
            "oneOf": [{"required": ["a"]}, {"properties": {"b": {"minLength": 2}}, "required": ["b"]}],
        },
    )
    assert not refusals(schema, {"port": "web", "mode": None, "either": {"a": "x"}})
    assert not refusals(schema, {"port": 1, "mode": "a", "either": {"b": "xx"}})
    assert refusals(schema, {"port": 1.5})
    assert refusals(schema, {"mode": "c"})
    assert refusals(schema, {"either": {"a": "x", "b": "xx"}})
    assert refusals(schema, {"either": {"a": "x", "c": "x"}})


def test_a_property_may_be_called_as_what_is_left_out() -> None:
    schema = own(spec={"type": "object", "properties": {"description": TEXT, "default": {"type": "integer"}}})
    assert refusals(schema, {"spec": {"default": "x"}})
    assert not refusals(schema, {"spec": {"description": "x", "default": 1}})
