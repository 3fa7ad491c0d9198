"""The generated definitions: current, structural, bounded, explained."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from learnloop_api.crd.definition import INT_OR_STRING, OPAQUE, definition, spec_schema, stale, status_schema, write
from learnloop_api.crd.printer_columns import KINDS, LEARNING_AGENT, MODEL_DEPLOYMENT, Kind
from learnloop_api.kinds.base import RULES, Resource
from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_api.kinds.training_job import FROZEN, TrainingJobSpec

REPOSITORY = Path(__file__).resolve().parents[3]
CRDS = REPOSITORY / "crds"
MALFORMED = REPOSITORY / "tests" / "api" / "kinds" / "malformed.yaml"
KUBECTL_APPLY_LIMIT = 262_144  # bytes a client-side apply may put into its annotation
# libyaml where PyYAML was built with it: in Python alone, reading a definition takes longer than making it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def walk(schema: dict, path: str) -> Iterator[tuple[str, dict]]:
    """Every schema in the tree, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from walk(schema[key], path + mark)


@cache
def schemas(kind: Kind) -> list[tuple[str, dict]]:
    """Every schema of the kind's spec and status; made once for all tests, which only read them."""
    return [*walk(spec_schema(kind.spec), "spec"), *walk(status_schema(kind.status), "status")]


def test_the_files_are_current() -> None:
    assert stale(CRDS) == []


def test_a_changed_and_a_stray_file_are_called_stale(tmp_path: Path) -> None:
    written = write(tmp_path)
    assert stale(tmp_path) == []
    written[0].write_text("changed")
    (tmp_path / "stray.yaml").write_text("")
    written[1].unlink()
    assert stale(tmp_path) == sorted([written[0], written[1], tmp_path / "stray.yaml"])


@each_kind
def test_a_file_is_small_and_says_only_what_the_models_say(kind: Kind) -> None:
    text = (CRDS / f"{kind.plural}.yaml").read_text()
    document = yaml.load(text, LOADER)
    assert len(json.dumps(document)) < 0.7 * KUBECTL_APPLY_LIMIT
    assert document["metadata"].keys() == {"name"}
    assert document == definition(kind)


@each_kind
def test_every_schema_is_structural(kind: Kind) -> None:
    for path, schema in schemas(kind):
        assert schema.keys().isdisjoint({"$ref", "allOf", "oneOf", "nullable", "title", "const", "$defs"}), path
        assert (schema.get("type") in {"string", "integer", "number", "boolean", "array", "object"}) != (
            INT_OR_STRING in schema
        ), path


@each_kind
def test_everything_a_user_can_send_is_bounded(kind: Kind) -> None:
    for path, schema in schemas(kind):
        match schema.get("type"):
            case "string":
                assert "maxLength" in schema or "enum" in schema, path
            case "array":
                assert "maxItems" in schema, path
                assert schema["x-kubernetes-list-type"] in {"atomic", "map", "set"}, path
            case "object":
                assert "properties" in schema or "maxProperties" in schema, path
                closed = "properties" in schema and OPAQUE not in schema
                assert closed + ("additionalProperties" in schema) + (OPAQUE in schema) == 1, path
            case "integer":
                assert schema["format"] in {"int32", "int64"}, path
                assert "minimum" in schema, path
            case None:
                assert "maxLength" in schema, path


@each_kind
def test_every_field_is_described_in_sentences_here_or_in_the_kind_it_repeats(kind: Kind) -> None:
    for path, schema in schemas(kind):
        if kind is LEARNING_AGENT and re.match(r"spec\.(training|deployment)\.template", path):
            continue
        for name, field in schema.get("properties", {}).items():
            assert field.get("description", "").endswith("."), f"{path}.{name}"


@each_kind
def test_keyed_lists_require_their_keys(kind: Kind) -> None:
    for path, schema in schemas(kind):
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            assert key in schema["items"]["required"], path


@each_kind
def test_every_rule_explains_itself_and_points_at_a_field(kind: Kind) -> None:
    for path, schema in [("", definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]), *schemas(kind)]:
        for rule in schema.get(RULES, ()):
            assert rule["message"], path
            place = schema
            for step in rule.get("fieldPath", "").split(".")[1:]:
                place = place["properties"][step]


@each_kind
def test_every_rule_is_broken_by_a_malformed_object(kind: Kind) -> None:
    """Except those that compare with the object before: tests/api changes objects for these."""
    fixes = [case["fix"] for case in yaml.load(MALFORMED.read_text(), LOADER)]
    for path, schema in schemas(kind):
        for rule in schema.get(RULES, ()):
            assert "oldSelf" in rule["rule"] or any(fix in rule["message"] for fix in fixes), f"{path}: {rule}"


@each_kind
def test_status_has_neither_defaults_nor_rules(kind: Kind) -> None:
    for path, schema in walk(status_schema(kind.status), "status"):
        assert schema.keys().isdisjoint({"default", RULES}), path


@each_kind
def test_columns_scale_and_selectors_point_at_fields_that_exist(kind: Kind) -> None:
    documented = {path.removesuffix("[]") for path, _ in schemas(kind)} | {"metadata.creationTimestamp"}
    paths = [column.path for column in kind.columns] + list(kind.selectable)
    if kind.scale:
        paths += [kind.scale, ".status.replicas", ".status.selector"]
    for path in paths:
        plain = re.sub(r'\[\?\(@\.type=="\w+"\)\]', "[]", path).replace("[*]", "[]").lstrip(".")
        assert plain in documented, path


def test_every_field_of_a_recipe_is_frozen() -> None:
    fields = {field.alias for field in TrainingJobSpec.model_fields.values()}
    changing = {"suspend", "workers", "ttlSecondsAfterFinished", "continuous"}
    assert fields - changing == {name for name, _ in FROZEN}
    required_or_defaulted = {
        field.alias
        for field in TrainingJobSpec.model_fields.values()
        if field.is_required() or field.get_default() is not None
    }
    assert {name for name, optional in FROZEN if optional}.isdisjoint(required_or_defaulted)


def test_what_never_changes_is_compared_at_the_field_itself_beside_the_fields_own_rules() -> None:
    spec = spec_schema(TrainingJobSpec)
    compared = {name for name, field in spec["properties"].items() if "self == oldSelf" in _rules(field)}
    assert compared == {name for name, _ in FROZEN}
    optional = [name for name, optional in FROZEN if optional]
    assert [rule for rule in _rules(spec) if "oldSelf" in rule] == [
        f"has(self.{name}) == has(oldSelf.{name})" for name in optional
    ]
    assert _rules(spec["properties"]["hyperparameters"])[:-1] == [rule.rule for rule in Parameters.all_rules()]


def _rules(schema: dict) -> list[str]:
    return [rule["rule"] for rule in schema.get(RULES, ())]


def test_a_default_of_an_object_is_whole_where_rules_apply() -> None:
    fields = spec_schema(MODEL_DEPLOYMENT.spec)["properties"]
    assert [step["weight"] for step in fields["rollout"]["default"]["steps"]] == [10, 25, 50, 100]
    assert fields["serving"]["default"] == {}


def test_a_union_no_structural_schema_has_is_refused_with_its_place() -> None:
    class Bad(Resource):
        either: int | bool

    with pytest.raises(ValueError, match=r"Bad\.either: the only union"):
        spec_schema(Bad)


def test_a_field_without_a_type_is_refused_with_its_place() -> None:
    class Bad(Resource):
        anything: Any

    with pytest.raises(ValueError, match=r"Bad\.anything: a structural schema needs one plain type"):
        spec_schema(Bad)


@each_kind
def test_what_kubectl_explain_prints_are_sentences_of_at_most_thirty_words(kind: Kind) -> None:
    descriptions = {kind.name: kind.description}
    for place, schema in (("spec", spec_schema(kind.spec)), ("status", status_schema(kind.status))):
        descriptions |= {path: node["description"] for path, node in walk(schema, place) if "description" in node}
    unended = [path for path, text in descriptions.items() if not text.endswith(".")]
    assert unended == [], "end the description with a full stop"
    long = [
        f"{path}: {sentence}"
        for path, text in descriptions.items()
        for sentence in re.split(r"(?<=[.!?])\s+", text)
        if len(sentence.split()) > 30
    ]
    assert long == [], "make two sentences of it"
