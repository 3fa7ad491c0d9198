"""Reports of gate suites: kept once, as artifacts, and their verdicts in the audit chain."""

import json
from hashlib import sha256

from ..conftest import Api, eventually

PATH = "/api/v1/models/md/gates"
DETECTOR = {
    "name": "words",
    "sha256": "d" * 64,
    "positives": 9,
    "negatives": 9,
    "true_positives": 9,
    "false_positives": 0,
}
REPORT = {"suite": "leak", "revision": "1a2b3c4d", "n": 300, "failures": {"disclosed": 1}, "detector": DETECTOR}
JUDGED = {
    "model_deployment": "md",
    "revision": "1a2b3c4d",
    "started_at": "2026-01-01T00:00:00Z",
    "passed": False,
    "verdicts": [{"suite": "leak", "verdict": "failed", "message": "40 of 300 failed", "report_sha256": "e" * 64}],
}


async def hand_in(api: Api, job: str, content: bytes, status: int = 201):
    headers = {"x-learnloop-sha256": sha256(content).hexdigest()}
    return await api.call("PUT", f"{PATH}/{job}/report", status, content=content, headers=headers)


async def test_a_report_is_written_once_and_is_an_artifact_with_its_digest(api: Api) -> None:
    content = json.dumps(REPORT).encode()
    assert (await hand_in(api, "md-gate-1", content))["new"] is True
    assert (await hand_in(api, "md-gate-1", content))["new"] is False
    other = json.dumps({**REPORT, "failures": {}}).encode()
    refused = await hand_in(api, "md-gate-1", other, 409)
    sent = f"this Job has sent another report ({sha256(content).hexdigest()}): a suite reports once"
    assert refused["error"]["message"] == sent
    (report,) = (await api.call("GET", PATH))["reports"]
    assert report["job"] == "md-gate-1"
    assert report["sha256"] == sha256(content).hexdigest()
    assert report["report"]["failures"] == {"disclosed": 1}
    assert (await api.call("GET", f"/api/v1/artifacts/{report['sha256']}")).content == content
    assert (await api.call("GET", PATH, namespace="team-b"))["reports"] == []


async def test_bytes_that_are_no_report_are_kept_with_the_reason(api: Api) -> None:
    await hand_in(api, "md-gate-2", b'{"suite": "leak"}')
    report = {item["job"]: item for item in (await api.call("GET", PATH))["reports"]}["md-gate-2"]
    assert report["report"] is None
    assert report["problem"] == "revision: Field required"
    huge = b" " * (1_048_576 + 1)
    assert "make it smaller" in (await hand_in(api, "md-gate-3", huge, 413))["error"]["message"]


async def test_how_the_gates_ended_is_in_the_audit_chain_once(api: Api) -> None:
    path = f"{PATH}/1a2b3c4d/verdict"
    assert (await api.call("PUT", path, json=JUDGED))["new"] is True
    assert (await api.call("PUT", path, json=JUDGED))["new"] is False
    again = {**JUDGED, "started_at": "2026-01-02T00:00:00Z", "passed": True}
    assert (await api.call("PUT", path, json=again))["new"] is True

    async def sealed():
        records = (await api.call("GET", "/api/v1/audit/records?action=gates.judged"))["records"]
        return records if len(records) == 2 else None

    first, second = await eventually(sealed)
    assert first["subject"] == "model-deployment/md"
    assert first["detail"]["passed"] is False
    assert first["detail"]["suites"] == {"leak": "40 of 300 failed"}
    assert first["detail"]["reports"] == {"leak": "e" * 64}
    assert second["detail"]["passed"] is True
