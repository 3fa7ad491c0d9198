from pathlib import Path

import pytest

from learnloop_api import names
from learnloop_operator.reconcile.trust_bundles import LOOK_SECONDS, TrustBundles


class Kube:
    """Namespaces with their ConfigMaps."""

    def __init__(self) -> None:
        self.bundles = {}
        self.looks = 0

    async def find(self, _, namespace: str, name: str):
        assert name == names.CA_CONFIG_MAP
        self.looks += 1
        return self.bundles.get(namespace)

    async def apply(self, manifest: dict, _: str, *, live) -> None:
        self.bundles[manifest["metadata"]["namespace"]] = manifest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_text("first")
    return path


async def test_a_namespace_that_was_deleted_and_made_anew_gets_its_bundle_with_the_first_pass(file: Path) -> None:
    kube = Kube()
    trust = TrustBundles(kube, file, lambda: 0.0)
    await trust.ensure("team-a")
    kube.bundles.clear()
    trust.forget("team-a")
    await trust.ensure("team-a")
    assert kube.bundles["team-a"]["data"] == {names.CA_KEY: "first"}


async def test_a_bundle_that_somebody_deleted_is_back_after_half_a_minute_and_costs_no_look_before(file: Path) -> None:
    kube, now = Kube(), [0.0]
    trust = TrustBundles(kube, file, lambda: now[0])
    await trust.ensure("team-a")
    kube.bundles.clear()
    now[0] = LOOK_SECONDS - 1
    await trust.ensure("team-a")
    assert (kube.looks, kube.bundles) == (1, {})
    now[0] = LOOK_SECONDS
    await trust.ensure("team-a")
    assert "team-a" in kube.bundles


async def test_a_renewed_authority_is_spread_at_once(file: Path) -> None:
    kube = Kube()
    trust = TrustBundles(kube, file, lambda: 0.0)
    await trust.ensure("team-a")
    file.write_text("second")
    await trust.ensure("team-a")
    assert kube.bundles["team-a"]["data"] == {names.CA_KEY: "second"}
