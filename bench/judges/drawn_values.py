"""Values drawn from values.schema.json: the chart renders what fits each kind, or names the field at fault."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from bench.judges.cases import Suite
from go_programs import go_build
from testing.manifests.__main__ import helm_program
from testing.manifests.kubeconform import misfits, write_schemas
from testing.manifests.rendered_chart import CHART, rendered

Schema = Mapping[str, Any]
RENDERINGS, MOST_CHANGES, LONGEST = 200, 5, 40
SCHEMA: Schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}}
RULE = {"to": [PEER], "ports": [{"port": 443}]}
OF_KUBERNETES: dict[str, Any] = {
    "tolerations[]": {"key": "gpu", "operator": "Exists"},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "requests": {"cpu": "250m", "memory": "1Gi"},
    "limits": {"memory": "2Gi"},
    "extraEnv[]": {"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}},
    "spec": {"storage": {"size": "20Gi"}},
    **{f"{name}[]": PEER for name in ("from", "dataPlaneFrom", "natsFrom", "metricsFrom")},
    **{f"{name}[]": RULE for name in ("to", "dataPlaneTo", "operatorTo")},
}
"""Values whose form is Kubernetes' own, which the schema leaves open."""
SIGNS = st.sampled_from(
    ["", "yes", "null", "0x10", "1e3", "a: b", "# x", "{{ .Values }}", '"', "'", "- x", "line\nline", "%", "@x"]
)
"""Texts that YAML or a template reads as something else."""
PRINTED = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn", "Cf"))
KEDA = frozenset({"keda.sh/v1alpha1/ScaledObject"})
"""A kind whose definition comes with no module of ours; `test_autoscaling.py` reads what the chart writes of it."""
REFUSED = re.compile(r"execution error at \([^)]*\): ([A-Za-z]+(?:\.[A-Za-z]+)*)|^- at '/([A-Za-z/]+)", re.MULTILINE)
"""By a template, or by the schema, whose rules join fields."""


def drawn_values() -> Suite:
    """A case for each drawing; a failure where values that the schema takes end in another way."""
    suite = Suite("values.schema.json, hypothesis", hypothesis.__version__)
    program, helm = go_build.ensure(go_build.KUBECONFORM, ["kubeconform"])["kubeconform"], helm_program()
    fields = dict(_fields(SCHEMA))
    one = st.sampled_from([name for name, schema in fields.items() if "properties" not in schema])
    change = one.flatmap(lambda name: st.tuples(st.just(name), _drawn(fields[name], name)))
    options: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    with TemporaryDirectory() as folder:
        write_schemas(Path(folder))

        @settings(max_examples=RENDERINGS, phases=[Phase.generate], **options)
        @given(st.lists(change, min_size=1, max_size=MOST_CHANGES))
        def renders(changes: list[tuple[str, Any]]) -> None:
            with suite.case(json.dumps(dict(changes))):
                _renders(helm, program, Path(folder), changes, fields)

        renders()
    return suite


def _renders(
    helm: Path, program: Path, folder: Path, changes: list[tuple[str, Any]], fields: Mapping[str, Schema]
) -> None:
    """Raises ValueError for a refusal without a field, and for an object that does not fit its kind."""
    values: dict[str, Any] = {}
    for name, value in changes:
        *parents, last = name.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    try:
        text = rendered(helm, values)
    except RuntimeError as error:
        refusal = REFUSED.search(str(error))
        if refusal is None or (refusal[1] or refusal[2].replace("/", ".")) not in fields:
            raise ValueError(f"refused without a field's name: {str(error).partition('Error:')[2][:600]}") from None
        return
    if unfit := misfits(program, folder, text, others=KEDA):
        raise ValueError("; ".join(f"{misfit.target}: {misfit.sentence}" for misfit in unfit)[:600])


def _fields(schema: Schema, name: str = "") -> Iterator[tuple[str, Schema]]:
    """Each value by its dotted name, objects too."""
    for key, inner in schema.get("properties", {}).items():
        own, resolved = f"{name}.{key}".strip("."), _whole(inner)
        yield own, resolved
        yield from _fields(resolved, own)


def _whole(schema: Schema) -> Schema:
    """With the definitions that it refers to."""
    for part in schema.get("allOf", ()):
        if "$ref" in part:
            return {**SCHEMA["definitions"][part["$ref"].rpartition("/")[2]], **schema}
    return schema


def _drawn(schema: Schema, name: str) -> st.SearchStrategy[Any]:
    """Values that the schema takes."""
    last = name.rpartition(".")[2]
    if last in OF_KUBERNETES:
        return st.just(OF_KUBERNETES[last])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"]
    if isinstance(kinds, list):
        return st.one_of(*(_drawn({**schema, "type": kind}, name) for kind in kinds))
    match kinds:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", -2) + 1)
            return st.integers(low, schema.get("maximum", 2**31 - 1))
        case "string":
            return _texts(schema)
        case "array":
            item = _drawn(_whole(schema["items"]), f"{name}[]")
            return st.lists(
                item, min_size=schema.get("minItems", 0), max_size=min(3, schema.get("maxItems", 3)), unique_by=str
            )
        case "object":
            inner = {key: _drawn(_whole(part), f"{name}.{key}") for key, part in schema.get("properties", {}).items()}
            required = {key: inner.pop(key) for key in schema.get("required", ())}
            if isinstance(more := schema.get("additionalProperties"), dict):
                return st.dictionaries(
                    st.from_regex("[a-z]([-a-z0-9]{0,9}[a-z0-9])?", fullmatch=True),
                    _drawn(more, f"{name}.*"),
                    max_size=2,
                )
            return st.fixed_dictionaries(required, optional=inner)
    raise ValueError(f"{name}: {kinds!r}: draw this type, too")


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    least, most = schema.get("minLength", 0), min(schema.get("maxLength", LONGEST), LONGEST)
    if "pattern" in schema:
        texts = st.from_regex(
            schema["pattern"], fullmatch=True, alphabet=st.characters(codec="ascii", min_codepoint=32)
        )
        return texts.filter(lambda text: least <= len(text) <= schema.get("maxLength", 10**6))
    return st.one_of(
        SIGNS.filter(lambda text: least <= len(text) <= most), st.text(PRINTED, min_size=least, max_size=most)
    )
