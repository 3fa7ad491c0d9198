"""Two installations over one namespace: one works, the other says whose it is."""

from typing import Any

import pytest

from learnloop_operator.adapters.kube.errors import Conflict
from learnloop_operator.adapters.leadership.namespace_claims import (
    CHECK_SECONDS,
    CLAIM_SECONDS,
    FENCE_SECONDS,
    ClaimedElsewhere,
    NamespaceClaims,
)
from learnloop_operator.controllers.passes.runtime import PASS_SECONDS


class Store:
    """Leases by namespace."""

    def __init__(self) -> None:
        self.leases: dict[str, Any] = {}

    async def find(self, _kind: Any, namespace: str, _name: str) -> Any:
        return self.leases.get(namespace)

    async def create(self, manifest: Any) -> Any:
        return self._keep(manifest, "0")

    async def replace(self, manifest: Any) -> Any:
        before = self.leases.get(manifest["metadata"]["namespace"])
        if before is None or before["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise Conflict("somebody wrote in between")
        return self._keep(manifest, before["metadata"]["resourceVersion"])

    def _keep(self, manifest: Any, version: str) -> Any:
        metadata = {**manifest["metadata"], "resourceVersion": str(int(version) + 1)}
        self.leases[metadata["namespace"]] = {**manifest, "metadata": metadata}
        return self.leases[metadata["namespace"]]

    async def delete(self, ref: Any) -> bool:
        return self.leases.pop(ref.namespace, None) is not None


class Two:
    """Two installations on one store and one clock."""

    def __init__(self) -> None:
        self.now, self.store = 0.0, Store()
        self.first, self.second = (
            NamespaceClaims(self.store, name, clock=lambda: self.now)  # type: ignore[arg-type]
            for name in ("one/operator", "two/operator")
        )


async def test_the_second_installation_does_nothing_and_names_the_first() -> None:
    two = Two()
    await two.first.hold("team")
    with pytest.raises(ClaimedElsewhere, match="namespace team belongs to one/operator"):
        await two.second.hold("team")
    assert two.second.others() == {"team": "one/operator"}
    assert "team is one/operator's" in (two.second.problem() or "")
    assert two.first.problem() is None
    await two.second.hold("another-team")


async def test_another_process_of_the_same_installation_goes_on_at_once() -> None:
    two = Two()
    await two.first.hold("team")
    await NamespaceClaims(two.store, "one/operator", clock=lambda: two.now).hold("team")  # type: ignore[arg-type]


async def test_a_silent_installation_stops_long_before_another_takes_over() -> None:
    two = Two()
    await two.first.hold("team")
    with pytest.raises(ClaimedElsewhere):
        await two.second.hold("team")
    two.store.leases["team"]["spec"]["renewTime"] = "now"
    two.now = CLAIM_SECONDS - CHECK_SECONDS
    with pytest.raises(ClaimedElsewhere):
        await two.second.hold("team")
    two.now += CLAIM_SECONDS + 1
    await two.second.hold("team")
    with pytest.raises(ClaimedElsewhere, match="two/operator"):
        await two.first.hold("team")
    assert FENCE_SECONDS + PASS_SECONDS < CLAIM_SECONDS


async def test_a_namespace_without_objects_is_given_back() -> None:
    two = Two()
    await two.first.hold("team")
    await two.first.give_back({"team"})
    assert not two.store.leases
    await two.second.hold("team")


async def test_what_was_refused_is_looked_at_again_also_when_a_later_pass_took_the_namespace() -> None:
    two, gained = Two(), list[str]()
    await two.first.hold("team")
    with pytest.raises(ClaimedElsewhere):
        await two.second.hold("team")
    two.now += CLAIM_SECONDS + CHECK_SECONDS + 1
    await two.second.hold("team")
    await two.second._look_after("team", gained.append)
    await two.second._look_after("team", gained.append)
    assert gained == ["team"]
