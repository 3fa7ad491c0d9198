"""The keeper against Secrets as the API server keeps them: versions, merge patches, conflicts."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop_api.tls.certificates import Pair, make_leaf, read
from learnloop_operator.adapters.certificates.authority_secret import ANNOTATION_ROTATE, decoded, held_authorities
from learnloop_operator.adapters.certificates.keeper_settings import keeper_of
from learnloop_operator.adapters.kube.errors import Conflict, NotFound
from learnloop_operator.adapters.settings import SettingsError

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PARTS = {"tls-data": ["learnloop-data.system.svc"], "tls-nats": ["learnloop-nats.system.svc", "*.nats.system.svc"]}
TOLD = {
    "namespace": "system",
    "authority": "tls-authority",
    "signer": "tls-workloads",
    "parts": PARTS,
    "authorityDays": 90,
    "partHours": 168,
    "announceHours": 24,
}


class Secrets:
    """GET and merge PATCH of Secrets in one namespace; nothing else is asked for."""

    def __init__(self) -> None:
        names = ("tls-authority", "tls-workloads", *PARTS)
        self.kept: dict[str, dict[str, Any]] = {
            name: {"metadata": {"name": name, "resourceVersion": "1"}} for name in names
        }
        self.conflicts = 0

    async def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        prefix = "/api/v1/namespaces/system/secrets/"
        assert path.startswith(prefix), "another namespace or kind"
        secret = self.kept.get(path.removeprefix(prefix))
        if secret is None:
            raise NotFound(path, status=404)
        if method == "GET":
            return json.loads(json.dumps(secret))  # type: ignore[no-any-return]
        assert method == "PATCH"
        if self.conflicts or options["body"]["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"]:
            self.conflicts = max(0, self.conflicts - 1)
            secret["metadata"]["resourceVersion"] += "1"
            raise Conflict(path, status=409)
        secret.setdefault("data", {}).update(options["body"]["data"])
        secret["metadata"]["resourceVersion"] += "1"
        return secret

    def text(self, name: str, key: str) -> str:
        return decoded(self.kept[name], key)

    def put(self, name: str, key: str, text: str) -> None:
        self.kept[name].setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keeper(secrets: Secrets, clock: Clock) -> Any:
    return keeper_of(json.dumps(TOLD), secrets, clock)


async def test_the_first_look_makes_everything_and_the_second_nothing(secrets: Secrets, clock: Clock) -> None:
    assert set(await keeper(secrets, clock).look()) == set(secrets.kept)
    assert await keeper(secrets, clock).look() == []
    bundle = secrets.text("tls-data", "ca.crt")
    assert bundle == secrets.text("tls-authority", "ca.crt") == secrets.text("tls-workloads", "ca.crt")
    leaf = read(secrets.text("tls-nats", "tls.crt"))
    assert leaf.names == set(PARTS["tls-nats"])
    assert leaf.signer_id == read(bundle).key_id


async def test_certificates_are_renewed_at_two_thirds_of_their_life(secrets: Secrets, clock: Clock) -> None:
    await keeper(secrets, clock).look()
    before = secrets.text("tls-data", "tls.crt")
    clock.now = START + timedelta(hours=100)
    assert await keeper(secrets, clock).look() == []
    clock.now = START + timedelta(hours=113)
    assert set(await keeper(secrets, clock).look()) == {*PARTS, "tls-workloads"}
    assert secrets.text("tls-data", "tls.crt") != before


async def test_a_rollover_announces_then_signs_then_forgets(secrets: Secrets, clock: Clock) -> None:
    await keeper(secrets, clock).look()
    old = secrets.text("tls-authority", "ca.crt")
    clock.now = START + 61 * DAY
    await keeper(secrets, clock).look()
    both = secrets.text("tls-data", "ca.crt")
    assert old in both
    assert both.count("BEGIN CERTIFICATE") == 2
    assert read(secrets.text("tls-data", "tls.crt")).signer_id == read(old).key_id, "the old one signs still"
    clock.now += DAY
    await keeper(secrets, clock).look()
    assert read(secrets.text("tls-data", "tls.crt")).signer_id == read(both).key_id, "the newest is first"
    clock.now += 8 * DAY
    await keeper(secrets, clock).look()
    assert secrets.text("tls-data", "ca.crt") == both.replace(old, "")


async def test_one_annotation_rotates_the_authority_once(secrets: Secrets, clock: Clock) -> None:
    await keeper(secrets, clock).look()
    secrets.kept["tls-authority"]["metadata"]["annotations"] = {ANNOTATION_ROTATE: "after the leak"}
    clock.now += DAY
    await keeper(secrets, clock).look()
    assert len(held_authorities(secrets.kept["tls-authority"])) == 2
    clock.now += DAY
    assert "tls-authority" not in await keeper(secrets, clock).look(), "obeyed once"
    assert len(held_authorities(secrets.kept["tls-authority"])) == 2


async def test_what_somebody_broke_is_made_anew(secrets: Secrets, clock: Clock) -> None:
    await keeper(secrets, clock).look()
    secrets.put("tls-data", "tls.key", "no key")
    assert await keeper(secrets, clock).look() == ["tls-data"]
    secrets.put("tls-authority", "authorities.json", "[{]")
    assert set(await keeper(secrets, clock).look()) == set(secrets.kept), "all are of the new authority"


async def test_two_who_start_together_agree(secrets: Secrets, clock: Clock) -> None:
    secrets.conflicts = 3
    await keeper(secrets, clock).look()
    bundle = secrets.text("tls-authority", "ca.crt")
    assert all(secrets.text(name, "ca.crt") == bundle for name in secrets.kept)


async def test_a_missing_secret_is_the_charts_business(secrets: Secrets, clock: Clock) -> None:
    del secrets.kept["tls-nats"]
    with pytest.raises(NotFound):
        await keeper(secrets, clock).look()


async def test_who_signs_pods_certificates_cannot_pose_as_the_data_plane(secrets: Secrets, clock: Clock) -> None:
    clock.now = datetime.now(UTC)
    await keeper(secrets, clock).look()
    signer = Pair(secrets.text("tls-workloads", "tls.crt"), secrets.text("tls-workloads", "tls.key"))
    forged = make_leaf(signer, ["learnloop-data.system.svc"], clock.now, DAY)
    from cryptography import x509

    constraint = x509.load_pem_x509_certificate(signer.certificate.encode()).extensions.get_extension_for_class(
        x509.NameConstraints
    )
    assert x509.DNSName("learnloop-data.system.svc") in (constraint.value.excluded_subtrees or [])
    assert forged.certificate.count("BEGIN CERTIFICATE") == 2, "the signer's own certificate is sent along"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"authorityDays": 20}, "make authorityDays longer"),
        ({"partHours": 0}, "partHours"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_times_that_do_not_fit_are_refused_with_their_names(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        keeper_of(json.dumps(TOLD | change), Secrets(), Clock())
