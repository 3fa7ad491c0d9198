"""Who asks for a certificate gets names of its own namespace, and no others."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop_common.tls.certificates import read
from learnloop_dataplane.access.certificates import Certificates
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError, Unavailable
from testing.certificates import make_authority, make_signer


def issuing(folder: Path, days: float = 3, hours: float = 24) -> Certificates:
    now = datetime.now(UTC)
    signer = make_signer(
        make_authority("a", now, timedelta(days=9)), "pods", now, timedelta(days=days), ["x.system.svc"]
    )
    (folder / "tls.crt").write_text(signer.certificate)
    (folder / "tls.key").write_text(signer.key)
    return Certificates(config(folder, hours))


def config(folder: Path, hours: float = 24, **changes: Any) -> Config:
    return Config.model_validate(
        {
            "dsn": "postgresql://nowhere",
            "artifacts": f"file://{folder}",
            "tls_signer_certificate": str(folder / "tls.crt"),
            "tls_signer_key": str(folder / "tls.key"),
            "tls_workload_hours": hours,
        }
        | changes
    )


async def test_a_pod_gets_its_names_and_those_by_which_metrics_are_read(tmp_path: Path) -> None:
    asked = ["cart.team-a.svc", "cart-3f9a2c81.team-a.svc.cluster.local", "memory-0.memory.team-a.svc"]
    issued = await issuing(tmp_path).issue("team-a", asked)
    facts = read(issued.certificate)
    assert facts.names == {*asked, "team-a.workloads.learnloop.dev", "workloads.learnloop.dev"}
    assert 15 * 3600 < issued.renew_after_seconds < 17 * 3600
    assert issued.certificate.count("BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize(
    "name",
    [
        "cart.team-b.svc",
        "cart.team-a.svc.evil.example",
        "learnloop-data.learnloop-system.svc",
        "x.team-b.team-a.svc.team-b.svc",
        "team-b.workloads.learnloop.dev",
        "a.b.c.team-a.svc",
        "kubernetes.default.svc",
        "cart.team-a.svc.cluster.locals",
        "example.com.evil",
    ],
)
async def test_a_name_outside_of_the_namespace_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ApiError, match=r"ask for names that end with \.team-a\.svc") as refused:
        await issuing(tmp_path).issue("team-a", ["cart.team-a.svc", name])
    assert (refused.value.status, refused.value.field, refused.value.value) == (403, "names", name)


@pytest.mark.parametrize("name", ["cart", "cart.team-a", "localhost"])
async def test_a_short_name_is_nobodys(tmp_path: Path, name: str) -> None:
    with pytest.raises(ApiError, match=r"write NAME\.team-a\.svc"):
        await issuing(tmp_path).issue("team-a", [name])


async def test_a_namespace_with_a_name_that_ends_like_another_stays_apart(tmp_path: Path) -> None:
    with pytest.raises(ApiError):
        await issuing(tmp_path).issue("a", ["cart.team-a.svc"])


async def test_an_authority_that_ends_makes_no_certificate_that_outlives_it(tmp_path: Path) -> None:
    issued = await issuing(tmp_path, days=0.01).issue("team-a", ["cart.team-a.svc"])
    assert issued.renew_after_seconds < 0.01 * 86400
    with pytest.raises(Unavailable):
        await issuing(tmp_path, days=0.00001).issue("team-a", ["cart.team-a.svc"])


async def test_a_renewed_authority_signs_without_a_restart(tmp_path: Path) -> None:
    certificates = issuing(tmp_path)
    before = read((await certificates.issue("team-a", ["cart.team-a.svc"])).certificate).signer_id
    issuing(tmp_path)
    assert read((await certificates.issue("team-a", ["cart.team-a.svc"])).certificate).signer_id != before


async def test_where_tls_is_off_the_answer_says_so(tmp_path: Path) -> None:
    off = Certificates(config(tmp_path, tls_signer_certificate=None, tls_signer_key=None))
    with pytest.raises(ApiError, match=r"tls\.mode is off") as refused:
        await off.issue("team-a", ["cart.team-a.svc"])
    assert refused.value.status == 404


async def test_a_missing_authority_is_no_error_of_the_callers(tmp_path: Path) -> None:
    certificates = issuing(tmp_path)
    (tmp_path / "tls.key").unlink()
    with pytest.raises(Unavailable, match="authority of pods' certificates"):
        await certificates.issue("team-a", ["cart.team-a.svc"])
