"""How much may train at once and in a day, of a namespace and of all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 1_000_000
FIELDS = {"runs": "runs", "gpus": "gpus", "runsPerDay": "runs_per_day"}


@dataclass(frozen=True, slots=True)
class Quota:
    """None: as many as anybody wants."""

    runs: int | None = None
    """Training runs at the same time."""
    gpus: int | None = None
    """GPUs of all ranks of these runs."""
    runs_per_day: int | None = None
    """Runs begun since midnight UTC."""

    @property
    def limits(self) -> bool:
        """It says anything at all."""
        return (self.runs, self.gpus, self.runs_per_day) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Quotas:
    """Of the cluster, of every namespace, and of some namespaces instead."""

    cluster: Quota = Quota()
    namespace: Quota = Quota()
    namespaces: Mapping[str, Quota] | None = None

    def of(self, namespace: str) -> Quota:
        """The quota of one namespace."""
        return (self.namespaces or {}).get(namespace, self.namespace)

    @property
    def limits(self) -> bool:
        """Some run may have to wait."""
        return self.cluster.limits or self.namespace.limits or any(q.limits for q in (self.namespaces or {}).values())


UNLIMITED = Quotas()
"""Nobody waits."""


def read(found: Any) -> Quotas:
    """Quotas of `{cluster: {runs, gpus, runsPerDay}, namespace: {…}, namespaces: {team-a: {…}}}`; 0 is no limit.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if not isinstance(found, dict):
        raise ValueError(f"{found!r}: set an object with cluster, namespace and namespaces")
    if strange := sorted(set(found) - {"cluster", "namespace", "namespaces"}):
        raise ValueError(f"{strange[0]}: no such field; set cluster, namespace or namespaces")
    own = found.get("namespaces") or {}
    if not isinstance(own, dict):
        raise ValueError(f"namespaces: {own!r}: set an object of quotas by namespace")
    return Quotas(
        _quota("cluster", found.get("cluster")),
        _quota("namespace", found.get("namespace")),
        {name: _quota(f"namespaces.{name}", item) for name, item in own.items()},
    )


def _quota(where: str, found: Any) -> Quota:
    if found is None:
        return Quota()
    if not isinstance(found, dict):
        raise ValueError(f"{where}: {found!r}: set an object with runs, gpus and runsPerDay")
    if strange := sorted(set(found) - set(FIELDS)):
        raise ValueError(f"{where}.{strange[0]}: no such field; set {', '.join(FIELDS)}")
    for field, number in found.items():
        whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and not (whole and 0 <= number <= LARGEST):
            raise ValueError(f"{where}.{field}: {number!r}: set a whole number from 0 to {LARGEST}")
    return Quota(**{FIELDS[field]: number or None for field, number in found.items()})
