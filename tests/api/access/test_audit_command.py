"""`kubectl learnloop audit` by a caller with two rights, through a real API server to the real data plane."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx
import pytest
import yaml

from learnloop_operator.cli import main
from testing.proxies.service_proxy_target import behind_service, own_address
from testing.servers import data_plane_server

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Place:
    """A namespace with a data plane, a caller's kubeconfig, and a way to the tables behind everybody's back."""

    namespace: str
    service: str
    url: str
    dsn: str
    caller: Path
    token: str

    def audit(self, *arguments: str, who: Path | None = None) -> int:
        common = ["--kubeconfig", str(who or self.caller), "-n", self.namespace]
        return main.main([*common, "audit", *arguments, "--data-service", self.service])

    def api(self, method: str, path: str, **more):
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.request(method, f"{self.url}{path}", headers=headers, trust_env=False, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def remember(self, *texts: str, **more) -> None:
        for text in texts:
            memory = {"agent_id": "walker", "memory_type": "semantic", "content": {"text": text}, **more}
            self.api("POST", "/api/v1/memory/store", json=memory)

    def sealed(self, records: int) -> None:
        end = time.monotonic() + 120
        while (report := self.api("GET", "/api/v1/audit/verify"))["records"] < records:
            assert time.monotonic() < end, report

    def sql(self, *statements: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(self.dsn)
            for statement in statements:
                await connection.execute(statement)
            await connection.close()

        asyncio.run(run())


def kubeconfig(api_server: Path, file: Path, token: str) -> Path:
    """The same cluster, as somebody else."""
    body = yaml.safe_load(api_server.read_text())
    for user in body["users"]:
        user["user"] = {"token": token}
    file.write_text(yaml.safe_dump(body))
    return file


def documented(namespace: str) -> list[dict]:
    """The roles of docs/explanation/audit.md, for this namespace, and who has them."""
    text = (ROOT / "docs" / "explanation" / "audit.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    roles = []
    for role in yaml.safe_load_all(text):
        name = f"{role['metadata']['name']}-{role['metadata']['namespace']}"
        role["metadata"] = {"name": name, "namespace": namespace}
        subject = {"kind": "ServiceAccount", "name": "auditor", "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
        roles += [role, {key: value for key, value in binding.items() if key != "rules"}]
    return roles


@pytest.fixture
def place(api_server: Path, kube, kubectl, namespace: str, tmp_path: Path) -> Iterator[Place]:
    cluster = yaml.safe_load(api_server.read_text())["clusters"][0]["cluster"]
    for account in ("auditor", "visitor"):
        metadata = {"name": account, "namespace": namespace}
        kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    for item in documented(namespace):
        kube.create(item)
    ca, own = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    own.write_text(kubectl("create", "token", "visitor", "-n", namespace))
    settings = {
        "auth": "jwks",
        "jwks_url": f"{cluster['server']}/openid/v1/jwks",
        "jwks_ca_file": str(ca),
        "jwks_token_file": str(own),
        "admins": f"system:serviceaccount:{namespace}:default",
        "sweep_seconds": 0.1,
    }
    caller = kubeconfig(
        api_server, tmp_path / "auditor.yaml", kubectl("create", "token", "auditor", "-n", namespace).strip()
    )
    address = own_address()
    with (
        data_plane_server.postgres() as dsn,
        data_plane_server.listening(dsn, tmp_path / "artifacts", address, **settings) as url,
    ):
        port = int(url.rpartition(":")[2])
        service = behind_service(kube, namespace, "learnloop-data", address, port, "/healthz")
        token = kubectl("create", "token", "default", "-n", namespace, "--audience", "learnloop").strip()
        yield Place(namespace, service, url, dsn, caller, token)


def test_the_chain_is_verified_exported_and_a_person_erased_with_a_receipt(place, tmp_path, capsys):
    place.remember("likes tea", "likes rum", user_id="anna")
    place.remember("opens at nine")
    place.sealed(3)
    assert place.audit("verify") == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    assert f"namespace {place.namespace}: 3 records, whole" in output

    assert place.audit("erase", "--user", "anna") == 1
    assert "say so with --yes" in capsys.readouterr().err
    receipt = tmp_path / "receipt.json"
    assert place.audit("erase", "--user", "anna", "--yes", "-o", str(receipt)) == 0, capsys.readouterr().err
    proof = json.loads(receipt.read_text())
    assert proof["rows"]["agent_memories"] == 2
    assert place.audit("erase", "--user", "anna", "--yes", "-o", str(receipt)) == 1
    assert "name a new file" in capsys.readouterr().err

    lines = tmp_path / "audit.ndjson"
    assert place.audit("export", "-o", str(lines)) == 0
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[-1]["action"] == "user.erased"
    assert (records[-1]["seq"], records[-1]["hash"]) == (proof["audit_seq"], proof["audit_hash"])
    assert "anna" not in lines.read_text()
    assert records[0]["actor"] == f"system:serviceaccount:{place.namespace}:default"
    capsys.readouterr()
    assert place.audit("export", "--action", "user.erased") == 0
    erasure = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["action"], one["outcome"]) for one in erasure] == [("user.erased", "begun"), ("user.erased", "done")]


def test_a_changed_record_is_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.remember("one", "two", "three")
    place.sealed(3)
    place.sql(
        "ALTER TABLE audit_log DISABLE TRIGGER append_only",
        "UPDATE audit_log SET actor = 'somebody else' WHERE seq = 2",
    )
    assert place.audit("verify") == 1
    assert "first bad record 2, changed; 1 records before it are good" in capsys.readouterr().err


def test_a_caller_without_the_rights_is_told_which_one_is_missing(place, api_server, kubectl, tmp_path, capsys):
    token = kubectl("create", "token", "visitor", "-n", place.namespace).strip()
    visitor = kubeconfig(api_server, tmp_path / "visitor.yaml", token)
    assert place.audit("verify", who=visitor) == 1
    errors = capsys.readouterr().err
    assert 'cannot create resource "serviceaccounts/token"' in errors
    assert place.audit("verify", "--service-account", "visitor") == 1
    assert 'serviceaccounts "visitor" is forbidden' in capsys.readouterr().err, "only the account that was granted"
