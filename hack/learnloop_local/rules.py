"""The CRDs' defaults and rules (CEL, `x-kubernetes-validations`), as an API server applies them to an object."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional

from learnloop_api.crd.definition import OPAQUE, definition
from learnloop_api.crd.printer_columns import KINDS
from learnloop_api.kinds.base import RULES

Schema = Mapping[str, Any]


def _overload(name: str, result: Any, work: Any) -> Any:
    return cel.FunctionDecl(name, [cel.Overload(f"{name}_list", result, [cel.Type.LIST], is_member=True, impl=work)])


_KUBERNETES = cel.CelExtension(
    "kubernetes.lists",
    [_overload("sum", cel.Type.DYN, sum), _overload("isSorted", cel.Type.BOOL, lambda items: items == sorted(items))],
)
_CEL = cel.NewEnv(
    variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN}, extensions=[ext_optional.ExtOptional(), _KUBERNETES]
)


@cache
def schema_of(plural: str) -> Schema | None:
    """Of a whole object; None of a kind that is not learnloop's."""
    kind = next((kind for kind in KINDS if kind.plural == plural), None)
    return definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] if kind else None


@cache
def _compiled(rule: str) -> Any:
    return _CEL.compile(rule)


def defaulted(schema: Schema, value: Any) -> Any:
    """`value` with the schema's defaults."""
    if isinstance(value, Mapping):
        fields = schema.get("properties", {})
        missing = {name: field["default"] for name, field in fields.items() if name not in value and "default" in field}
        return {name: defaulted(fields.get(name, {}), item) for name, item in {**value, **missing}.items()}
    return [defaulted(schema.get("items", {}), item) for item in value] if isinstance(value, list) else value


def broken(schema: Schema, value: Any, old: Any, path: str = "") -> Iterator[str]:
    """A sentence for each rule that the object breaks. `old`: the object before, None where it is new."""
    for rule in schema.get(RULES, ()):
        if "oldSelf" in rule["rule"] and old is None:
            continue
        result = _compiled(rule["rule"]).eval(_CEL.Activation({"self": value, "oldSelf": old}))
        if result.value() is not True:
            yield f"{path}{rule.get('fieldPath', '')}: {rule['message']}".removeprefix(".")
    if isinstance(value, Mapping) and OPAQUE not in schema:
        before = old if isinstance(old, Mapping) else {}
        for name, field in schema.get("properties", {}).items():
            if name in value:
                yield from broken(field, value[name], before.get(name), f"{path}.{name}")
    elif isinstance(value, list):
        yield from _repeated(schema, value, path)
        for index, item in enumerate(value):
            yield from broken(schema.get("items", {}), item, None, f"{path}[{index}]")


def _repeated(schema: Schema, items: list[Any], path: str) -> Iterator[str]:
    keys, earlier = schema.get("x-kubernetes-list-map-keys"), list[Any]()
    for index, item in enumerate(items if keys or schema.get("x-kubernetes-list-type") == "set" else ()):
        identity = [item.get(key) for key in keys] if keys else item
        if identity in earlier:
            yield f"{path}[{index}]: Duplicate value: {identity}".removeprefix(".")
        earlier.append(identity)
