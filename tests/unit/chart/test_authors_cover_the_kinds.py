"""Every leaf of every kind is asked for its author's rights, or is listed as one that needs none.

A new leaf fails here until the policy reads it, or until free_leaves.txt lists it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import LOADER, ROOT, Render

FREE = Path(__file__).with_name("free_leaves.txt")
EMBEDDED = (
    ("LearningAgent.training.template.", "TrainingJob."),
    ("LearningAgent.deployment.template.", "ModelDeployment."),
)
NEVER_FREE = re.compile(
    r"secret|keyRef|\bimage|claim(Name|\b)|volume|configMap|serviceAccount|command|\bargs|arguments|\benv\b|\.pod\.",
    re.I,
)
"""Leaves by which a pod, a mount or a Secret is chosen. `.pod.`: any option of pods."""


ADDRESSES = ("http://{}db.team-b:80/v1", "s3://{}bucket/key", "oci://{}registry/image", "{}db.team-b:50051")
"""With a place for a user and a password. The first and the last are hosts that the author chooses."""


def leaves(schema: dict, at: str) -> Iterator[tuple[str, dict]]:
    """Paths of a structural schema's leaves; items and values of maps have their container's path."""
    if "properties" in schema:
        for name, field in schema["properties"].items():
            yield from leaves(field, f"{at}.{name}")
        return
    inner = schema.get("items") or schema.get("additionalProperties")
    if isinstance(inner, dict):
        yield from leaves(inner, at)
    else:
        yield at, schema


def accepts(leaf: dict, address: str) -> bool:
    """Is this leaf for addresses, and may this one stand there? One that takes any word is none."""
    rules = [rule["rule"] for rule in leaf.get("x-kubernetes-validations", ())]
    matches = [re.fullmatch(r"self\.matches\('(.*)'\)", rule) for rule in rules]
    patterns = [match[1].replace("\\\\", "\\") for match in matches if match] + [leaf.get("pattern", "")]
    return all(re.search(one, address) for one in patterns) and not all(re.search(one, "word") for one in patterns)


def all_leaves() -> Iterator[tuple[str, dict]]:
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        definition = yaml.load(path.read_text(encoding="utf-8"), LOADER)
        kind = definition["spec"]["names"]["kind"]
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        yield from leaves(schema["properties"]["spec"], kind)


def listed() -> set[str]:
    """Leaves of free_leaves.txt: each line is a path and the names of leaves below it."""
    fields = set()
    for line in FREE.read_text(encoding="utf-8").splitlines():
        block, _, names = line.partition(":")
        if not line.startswith("#"):
            fields |= {f"{block}.{name}" for name in names.split()}
    return fields


class Policy:
    """The fields that the rendered policy reads of an object."""

    def __init__(self, render: Render, free: list[str]) -> None:
        rendered = render({"authors": {"askRights": "always", "free": free}})
        policy = rendered.one("ValidatingAdmissionPolicy", "learnloop-system-learnloop-authors")
        self.variables = {item["name"]: item["expression"] for item in policy["spec"]["variables"]}
        self.fields = set(re.findall(r"'(\w+)'", self.variables["fields"].split("]")[0]))

    def reads(self, variable: str, root: str = "object") -> list[str]:
        """Paths in a list, without `spec`."""
        paths = re.findall(rf"{re.escape(root)}\.\?spec\.([.?A-Za-z]+)", self.variables[variable])
        return [path.replace("?", "") for path in paths]

    def asks(self, path: str) -> bool:
        """Does it ask about the author's rights for this leaf?"""

        def below(variable: str) -> list[str]:
            return [path[len(at) + 1 :] for at in self.reads(variable) if path == at or path.startswith(f"{at}.")]

        containers, holders, suites = below("pods"), below("holders"), below("suites")
        return (
            any(rest.split(".")[0] in self.fields for rest in containers + suites)
            or any(not rest or rest in ("name", "key") or re.search(r"(KeySecret|key)Ref\.", rest) for rest in holders)
            or any(rest in ("data.configMap", "detector.url") or "detector.apiKeySecretRef." in rest for rest in suites)
            or "uri" in below("arms")
            or any(below(variable) for variable in ("configMaps", "bases", "models", "addresses", "routes"))
        )


@pytest.fixture(scope="module")
def policy(render: Render) -> Policy:
    return Policy(render, [])


def test_every_leaf_of_every_kind_is_asked_about_or_listed_as_free(policy: Policy) -> None:
    free = listed()
    unclassified, gone = [], set(free)
    for leaf in sorted({path for path, _ in all_leaves()}):
        path = leaf.partition(".")[2]
        name = next((leaf.replace(at, to, 1) for at, to in EMBEDDED if leaf.startswith(at)), leaf)
        gone.discard(name)
        if not policy.asks(path) and name not in free:
            unclassified.append(leaf)
        assert not (policy.asks(path) and name in free), f"{leaf} is asked about: remove it from {FREE.name}"
    assert not gone, f"no kind has these leaves: remove them from {FREE.name}: {sorted(gone)}"
    assert not unclassified, (
        f"have authors/named-objects.yaml read these leaves, or add them to {FREE.name}: {unclassified}"
    )


def test_no_leaf_that_chooses_an_image_a_mount_or_a_secret_is_free() -> None:
    assert not [leaf for leaf in listed() if NEVER_FREE.search(leaf)]


def test_no_leaf_that_names_a_host_is_free_and_none_has_a_password(policy: Policy) -> None:
    """A spec is printed, and copied to status and logs."""
    hosts = [leaf for leaf, schema in all_leaves() for one in (0, 3) if accepts(schema, ADDRESSES[one].format(""))]
    assert len(hosts) >= 15
    assert not [leaf for leaf in hosts if not policy.asks(leaf.partition(".")[2])]
    secret = [one.format("me:secret@") for one in ADDRESSES]
    assert not [leaf for leaf, schema in all_leaves() if any(accepts(schema, one) for one in secret)]


def test_the_policy_compares_with_the_same_fields_as_they_were(policy: Policy) -> None:
    lists = [name for name in policy.variables if policy.reads(name)]
    assert len(lists) >= 7
    for name in lists:
        assert policy.reads(name) == policy.reads(f"{name}Before", "variables.before")
