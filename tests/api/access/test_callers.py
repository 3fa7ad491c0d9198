"""The data plane before a real API server: whose token holds, and TrainingJobs with the caller's rights."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.config import Config
from testing.servers.postgres_server import own_postgres

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "learnloop-data-test"
SPEC = {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "CartPole-v1"}}


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with own_postgres() as server:
        yield str(server.get_uri())


@pytest.fixture(scope="module")
def installed(kube, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The data plane's account with the rights the chart gives it when training by REST is on."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    values = ["--set", "dataPlane.trainingApi.enabled=true"]
    files = ["-s", "templates/data-plane/rbac.yaml", "-s", "templates/data-plane/deployment.yaml"]
    command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", SYSTEM]
    text = subprocess.run([*command, *values, *files], capture_output=True, text=True, check=True).stdout
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    for item in yaml.load_all(text, yaml.CSafeLoader):
        if item and item["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
            kube.apply(item)


@pytest.fixture
def trainer(kube, namespace: str) -> str:
    """A service account that may work with TrainingJobs in its namespace; `visitor` next to it may not."""
    verbs = ["get", "list", "create", "patch"]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "trainer"}}
    role["rules"] = [{"apiGroups": ["learnloop.dev"], "resources": ["trainingjobs"], "verbs": verbs}]
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "trainer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trainer"},
        "subjects": [{"kind": "ServiceAccount", "name": "trainer", "namespace": namespace}],
    }
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": n}} for n in ("trainer", "visitor")]
    for item in (*accounts, role, binding):
        item["metadata"]["namespace"] = namespace
        kube.apply(item)
    return namespace


@asynccontextmanager
async def data_plane(
    api_server: Path, kubectl, dsn: str, tmp_path: Path, **changes
) -> AsyncIterator[httpx.AsyncClient]:
    """The service, with the token and the certificate authority a pod of it would have."""
    cluster = yaml.safe_load(api_server.read_text())["clusters"][0]["cluster"]
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    token.write_text(kubectl("create", "token", "learnloop-data", "-n", SYSTEM))
    values = {
        "dsn": dsn,
        "artifacts": f"file://{tmp_path / 'artifacts'}",
        "jwks_url": f"{cluster['server']}/openid/v1/jwks",
        "jwks_ca_file": str(ca),
        "jwks_token_file": str(token),
        "kube_url": cluster["server"],
    }
    app = create_app(Config.model_validate(values | changes))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://data", trust_env=False, timeout=60) as client,
    ):
        await asyncio.wait_for(app.state.data_plane.shared.db.ready.wait(), 60)
        yield client


def bearer(kubectl, account: str, namespace: str) -> dict[str, str]:
    """The headers of a pod of this account."""
    token = kubectl("create", "token", account, "-n", namespace, "--audience", "learnloop").strip()
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def training(
    installed: None, api_server: Path, kubectl, dsn: str, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    async with data_plane(api_server, kubectl, dsn, tmp_path, training_api=True) as client:
        yield client


async def test_a_job_is_started_once_stopped_resumed_and_seen(training, kube, kubectl, trainer):
    headers = bearer(kubectl, "trainer", trainer)
    keyed = headers | {"Idempotency-Key": "first-try"}
    first = await training.post("/api/v1/training/start", json={"spec": SPEC}, headers=keyed)
    assert first.status_code == 201, first.text
    job = first.json()["job"]
    again = await training.post("/api/v1/training/start", json={"spec": SPEC}, headers=keyed)
    assert (again.status_code, again.json()["job"], again.json()["duplicate"]) == (200, job, True)
    reference = {"apiVersion": "learnloop.dev/v1alpha1", "kind": "TrainingJob"}
    reference["metadata"] = {"name": job, "namespace": trainer}
    stored = kube.get(reference)
    requested = stored["metadata"]["annotations"]["learnloop.dev/requested-by"]
    assert requested == f"system:serviceaccount:{trainer}:trainer"
    other = {**SPEC, "totalSteps": 2000, "pod": {"affinity": {"weight": 2**70}}}
    taken = await training.post("/api/v1/training/start", json={"spec": other}, headers=keyed)
    assert taken.status_code == 409
    for _ in range(2):
        stopped = await training.post("/api/v1/training/stop", json={"job": job}, headers=headers)
        assert stopped.json()["suspended"] is True
    assert kube.get(reference)["spec"]["suspend"] is True
    resumed = await training.post("/api/v1/training/start", json={"spec": SPEC}, headers=keyed)
    assert (resumed.status_code, resumed.json()["suspended"]) == (200, False)
    kube.merge(reference, {"status": {"step": 500, "totalSteps": 1000, "progress": "50%"}}, "status")
    code = (await training.get("/api/v1/training/status", params={"job": job}, headers=headers)).json()
    assert (code["jobs"][0]["step"], code["jobs"][0]["progress"]) == (500, "50%")
    records = (await training.get("/api/v1/audit/records", headers=headers)).json()["records"]
    assert all(record["actor"] == requested for record in records)


async def test_jobs_are_listed_page_by_page_and_of_one_namespace(training, kubectl, trainer):
    headers = bearer(kubectl, "trainer", trainer)
    for number in range(3):
        body = {"name": f"job-{number}", "spec": SPEC}
        assert (await training.post("/api/v1/training/start", json=body, headers=headers)).status_code == 201
    first = (await training.get("/api/v1/training/status", params={"limit": 2}, headers=headers)).json()
    rest = {"limit": 2, "after": first["next"]}
    second = (await training.get("/api/v1/training/status", params=rest, headers=headers)).json()
    assert [job["job"] for job in first["jobs"] + second["jobs"]] == ["job-0", "job-1", "job-2"]
    assert second["next"] is None


async def test_what_the_caller_may_not_do_is_not_done_for_him(training, kubectl, trainer):
    headers = bearer(kubectl, "visitor", trainer)
    for method, path, body in (
        ("POST", "/api/v1/training/start", {"spec": SPEC}),
        ("POST", "/api/v1/training/stop", {"job": "x"}),
        ("GET", "/api/v1/training/status", None),
    ):
        answer = await training.request(method, path, json=body, headers=headers)
        assert answer.status_code == 403
        assert "visitor may not" in answer.json()["error"]["message"]
    elsewhere = bearer(kubectl, "trainer", trainer) | {"x-learnloop-namespace": "default"}
    assert (await training.get("/api/v1/training/status", headers=elsewhere)).status_code == 403


async def test_the_api_servers_own_rules_hold_and_are_told(training, kubectl, trainer):
    headers = bearer(kubectl, "trainer", trainer)
    bad = {"spec": {**SPEC, "hyperparameters": {"embedding": 8}}}
    answer = await training.post("/api/v1/training/start", json=bad, headers=headers)
    assert answer.status_code == 422
    assert "embedding: only with algorithm qmix" in answer.json()["error"]["message"]
    missing = await training.post("/api/v1/training/stop", json={"job": "nowhere"}, headers=headers)
    assert missing.status_code == 404


async def test_where_it_is_off_nothing_is_asked_and_nothing_started(
    installed: None, api_server: Path, kubectl, dsn: str, tmp_path: Path, trainer: str
) -> None:
    async with data_plane(api_server, kubectl, dsn, tmp_path) as client:
        headers = bearer(kubectl, "trainer", trainer)
        answer = await client.post("/api/v1/training/start", json={"spec": SPEC}, headers=headers)
    assert answer.status_code == 403
    assert "dataPlane.trainingApi.enabled" in answer.json()["error"]["message"]
