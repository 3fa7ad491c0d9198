"""The model that a manifest names, changed where it stands: comments, order and quotes of the file stay."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml

from learnloop_operator.cli.errors import CommandError

MOST_CHARACTERS = 1 << 20
WHERE = {"LearningAgent": ("spec", "deployment", "model"), "ModelDeployment": ("spec", "model")}
_PLAIN = re.compile(r"[a-z0-9]+://[A-Za-z0-9._/-]+|(?=[0-9a-f]*[a-df])[0-9a-f]{64}")
"""What no reader of YAML takes for anything but text."""


class ModelInManifest(NamedTuple):
    """An artifact by address and digest."""

    uri: str
    sha256: str


def with_model(text: str, name: str, model: ModelInManifest) -> str:
    """The same text, in which the LearningAgent or ModelDeployment of this name has this model.

    A LearningAgent is pinned to it (`spec.deployment.model`); a ModelDeployment serves it (`spec.model`).

    Raises:
        CommandError: the text is no YAML, has no such object or two of them, or the object names no model yet.
    """
    if len(text) > MOST_CHARACTERS:
        raise CommandError(f"the file has {len(text)} characters, and {MOST_CHARACTERS} is the most; name the manifest")
    try:
        documents = [node for node in yaml.compose_all(text, yaml.SafeLoader) if isinstance(node, yaml.MappingNode)]
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())[:300]
        raise CommandError(f"the file is no YAML: {told}; a template is none") from error
    found = [node for node in documents if _text(node, "kind") in WHERE and _text(node, "metadata", "name") == name]
    if len(found) != 1:
        raise CommandError(
            f"{len(found)} LearningAgents and ModelDeployments of the file are called {name!r}; exactly one must be"
        )
    [node] = found
    where = WHERE[_text(node, "kind")]
    mapping = _at(node, where)
    if not isinstance(mapping, yaml.MappingNode) or not isinstance(_at(mapping, ("uri",)), yaml.ScalarNode):
        raise CommandError(f"{'.'.join(where)}.uri of {name!r} is not in the file; write a first model there by hand")
    return _written(text, mapping, model)


def _written(text: str, mapping: yaml.MappingNode, model: ModelInManifest) -> str:
    places: list[tuple[int, int, str]] = []
    keys = {key.value: (key, value) for key, value in mapping.value}
    key, uri = keys["uri"]
    address = _scalar(model.uri)
    if "sha256" in keys:
        old = keys["sha256"][1]
        places.append((old.start_mark.index, old.end_mark.index, _scalar(model.sha256)))
    else:
        between = ", " if mapping.flow_style else "\n" + " " * key.start_mark.column
        address += f"{between}sha256: {_scalar(model.sha256)}"
    places.append((uri.start_mark.index, uri.end_mark.index, address))
    for begin, end, new in sorted(places, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _scalar(value: str) -> str:
    """As YAML writes it: plain where nothing in it could be read otherwise."""
    if _PLAIN.fullmatch(value):
        return value
    return str(yaml.safe_dump(value, default_style='"', width=len(value) * 10 + 100)).rstrip("\n")


def _at(node: yaml.Node | None, path: Sequence[str]) -> yaml.Node | None:
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for key, value in node.value if key.value == name), None)
    return node


def _text(node: yaml.Node, *path: str) -> str:
    found = _at(node, path)
    return str(found.value) if isinstance(found, yaml.ScalarNode) else ""
