"""Old artifacts and checkpoints go, on a directory and on S3; what is in use never does, and nothing goes unasked."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ..conftest import Api, eventually, running, settings, superuser

FILES = "directory"


@pytest.fixture(params=[FILES, "s3"])
async def api(request: pytest.FixtureRequest, dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service that keeps its blobs in one place or the other."""
    changes = {}
    if request.param != FILES:
        request.getfixturevalue("s3")
        changes = {"artifacts": "s3://models/learnloop"}
    async with running(**settings(dsn, tmp_path, **changes)) as api:
        yield api


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return hashlib.sha256(request.node.name.encode()).hexdigest()[:12]


async def put(api: Api, namespace: str, body: bytes, path: str = "/api/v1/artifacts", status: int = 201) -> str:
    sha256 = hashlib.sha256(body).hexdigest()
    headers = {"x-learnloop-sha256": sha256, "x-learnloop-step": "1"}
    await api.call("PUT", path, status, content=body, headers=headers, namespace=namespace)
    return sha256


async def age(dsn: str, table: str, namespace: str, days: int) -> None:
    async with superuser(dsn) as connection:
        await connection.execute(
            f"UPDATE {table} SET created_at = created_at - make_interval(days => $2) WHERE namespace = $1",
            namespace,
            days,
        )


async def tell(api: Api, namespace: str, *used: str, jobs: tuple[str, ...] = ()):
    body = {"sha256": list(used), "jobs": list(jobs)}
    return await api.call("PUT", "/api/v1/artifacts/in-use", json=body, namespace=namespace)


async def on_record(api: Api, namespace: str, action: str):
    """Subject and detail of the records of this action, once there are any."""

    async def sealed():
        records = await api.call("GET", f"/api/v1/audit/records?action={action}", namespace=namespace)
        return [(record["subject"], record["detail"]) for record in records["records"]]

    return await eventually(sealed)


async def there(api: Api, namespace: str, sha256: str) -> bool:
    path = f"/api/v1/artifacts/{sha256}"
    answer = await api.client.get(path, headers={"x-learnloop-namespace": namespace})
    assert answer.status_code in {200, 404}
    return answer.status_code == 200


async def test_an_artifact_goes_after_its_time_unless_it_is_in_use(api: Api, dsn: str, namespace: str) -> None:
    served, idle = await put(api, namespace, b"served"), await put(api, namespace, b"idle")
    await age(dsn, "artifacts", namespace, 91)
    fresh = await put(api, namespace, b"fresh")
    assert await tell(api, namespace, served) == {"artifacts_deleted": 1, "checkpoints_deleted": 0}
    assert [await there(api, namespace, sha256) for sha256 in (served, idle, fresh)] == [True, False, True]
    assert await on_record(api, namespace, "artifact.deleted") == [(f"artifact/{idle}", {"unused_days": 90})]
    assert await tell(api, namespace) == {"artifacts_deleted": 0, "checkpoints_deleted": 0}, "its time restarts"
    assert await there(api, namespace, served)


async def test_what_is_uploaded_again_begins_anew(api: Api, dsn: str, namespace: str) -> None:
    sha256 = await put(api, namespace, b"model")
    await age(dsn, "artifacts", namespace, 91)
    await put(api, namespace, b"model")
    await tell(api, namespace)
    assert await there(api, namespace, sha256)
    async with superuser(dsn) as connection:
        await connection.execute("UPDATE artifacts SET used_at = NULL WHERE namespace = $1", namespace)
    await tell(api, namespace)
    assert not await there(api, namespace, sha256)
    await put(api, namespace, b"model")
    assert await there(api, namespace, sha256)


async def test_checkpoints_go_with_their_time_unless_the_run_may_go_on(api: Api, dsn: str, namespace: str) -> None:
    for job in ("ended", "suspended"):
        await put(api, namespace, job.encode(), f"/api/v1/training/runs/{job}/checkpoint", 200)
    await age(dsn, "model_checkpoints", namespace, 91)
    assert (await tell(api, namespace, jobs=("suspended",)))["checkpoints_deleted"] == 1
    await api.call("GET", "/api/v1/training/runs/suspended/checkpoint", namespace=namespace)
    await api.call("GET", "/api/v1/training/runs/ended/checkpoint", 404, namespace=namespace)
    records = await on_record(api, namespace, "checkpoints.deleted")
    assert records == [("training-job/ended", {"count": 1, "days": 90})]


async def test_a_store_that_answers_is_found_to(api: Api) -> None:
    await api.plane.shared.blobs.ping()
    await api.plane.training.artifacts.look()
    assert api.plane.training.artifacts.problem == ""


async def test_another_namespace_is_not_touched(api: Api, dsn: str, namespace: str) -> None:
    sha256 = await put(api, namespace, b"model")
    await age(dsn, "artifacts", namespace, 91)
    await tell(api, "somewhere-else")
    assert await there(api, namespace, sha256)


async def test_the_checkpoint_before_the_newest_is_there_for_when_that_one_is_damaged(api: Api, namespace: str) -> None:
    path = "/api/v1/training/runs/job/checkpoint"
    for body in (b"one", b"two", b"three"):
        await put(api, namespace, body, path, 200)
    answers = [await api.call("GET", f"{path}?back={back}", namespace=namespace) for back in (0, 1)]
    assert [answer.content for answer in answers] == [b"three", b"two"]
    await api.call("GET", f"{path}?back=2", 422, namespace=namespace)
