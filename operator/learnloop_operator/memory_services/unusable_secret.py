"""Which Secret keeps a MemoryService's pods from starting, by what the kubelet says.

The operator may read no Secret, so that nobody gains by it what they may not read themselves.
"""

import re
from dataclasses import dataclass

from learnloop_operator.memory_services import models
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

_GONE = re.compile(r'secret "(?P<name>[a-z0-9][-a-z0-9.]*)" not found', re.IGNORECASE)
_NO_KEY = re.compile(
    r"couldn't find key (?P<key>[-._A-Za-z0-9]+) in Secret (?:[a-z0-9-]+/)?(?P<name>[a-z0-9][-a-z0-9.]*)"
)
_NO_ITEM = re.compile(r"references non-existent secret key: (?P<key>[-._A-Za-z0-9]+)")


@dataclass(frozen=True, slots=True)
class UnusableSecret:
    """A Secret, and what to do about it."""

    name: str
    sentence: str


def unusable_secret(world: MemoryServiceSnapshot) -> UnusableSecret | None:
    """The Secret that pods wait for; None where they wait for none."""
    said = world.complaint or ""
    gone, no_key, no_item = _GONE.search(said), _NO_KEY.search(said), _NO_ITEM.search(said)
    if gone:
        name, found = gone["name"], "does not exist"
    elif no_key:
        name, found = no_key["name"], f"has no key {no_key['key']}"
    elif no_item:
        name, found = world.credentials_name, f"has no key {no_item['key']}"
    else:
        return None
    field, key = _named(world).get(name, ("", ""))
    where = f"{field}: Secret {name}" if field else f"Secret {name}"
    fix = f"create it with key {key}" if key else "delete it to have it made anew"
    return UnusableSecret(
        name, f"{where} {found} in namespace {world.namespace}: {fix}; pods that wait for it then start"
    )


def _named(world: MemoryServiceSnapshot) -> dict[str, tuple[str, str]]:
    """Secrets that the user names: field and key."""
    named = {}
    if own := world.spec.dsn_secret_ref:
        named[own.name] = ("spec.dsnSecretRef", own.key)
    weaviate = world.spec.weaviate
    if weaviate is not None and (key := weaviate.api_key_secret_ref):
        named[key.name] = ("spec.weaviate.apiKeySecretRef", key.key)
    named |= {ref.name: (field, ref.key) for field, ref in models.keys(world.spec).items() if ref}
    return named
