"""Reports of gate suites, written once for each Job, and how the operator judged them."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from learnloop_api.wire.gates import GateReport, GateReports, JudgedGates, StoredReport
from learnloop_dataplane.audit.journal import note
from learnloop_dataplane.blobs.blob_store import Spooled
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.registry.artifacts import Artifacts
from learnloop_dataplane.strict_json import StrictReader

MOST = 64
_PUT = """
INSERT INTO gate_reports (namespace, model_deployment, job, sha256, report, problem) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, job) DO NOTHING RETURNING 1
"""
_GET = "SELECT sha256 FROM gate_reports WHERE namespace = $1 AND job = $2"
_LIST = """
SELECT job, sha256, report, problem, received_at FROM gate_reports
WHERE namespace = $1 AND model_deployment = $2 ORDER BY received_at DESC, job LIMIT $3
"""
_JUDGED = """
INSERT INTO gate_verdicts (namespace, model_deployment, revision, started_at, verdict) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING 1
"""
_READER = StrictReader(GateReport)


class GateRecords:
    """The reports and verdicts of one data plane."""

    def __init__(self, db: Database, artifacts: Artifacts) -> None:
        self._db = db
        self._artifacts = artifacts

    async def put(self, namespace: str, deployment: str, job: str, upload: Spooled) -> bool:
        """Keeps a report as an artifact, and what it says; False when the same one is there already.

        Bytes that are no report are kept too, with the reason: a broken suite is evidence of nothing, and is told so.

        Raises:
            ApiError: 409, this Job has handed in another report.
            Unavailable: not kept; sending it again is safe.
        """
        report, problem = await asyncio.to_thread(_read_file, Path(upload.path))
        await self._artifacts.put(namespace, upload)
        said = report.model_dump_json() if report else None
        async with self._db.tenant(namespace) as connection:
            new = await connection.fetchval(_PUT, namespace, deployment, job, upload.sha256, said, problem)
            if not new:
                known = await connection.fetchval(_GET, namespace, job)
                if known != upload.sha256:
                    message = f"this Job has handed in another report ({known}): a suite reports once"
                    raise ApiError(409, message, field="x-learnloop-sha256", value=upload.sha256)
                return False
            told = {"job": job, "sha256": upload.sha256, "suite": report.suite if report else "", "problem": problem}
            await note(connection, namespace, "gate.reported", f"model-deployment/{deployment}", told)
        return True

    async def reports(self, namespace: str, deployment: str) -> GateReports:
        """The newest reports of a ModelDeployment's suites."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_LIST, namespace, deployment, MOST)
        return GateReports(
            reports=[
                StoredReport(
                    job=row["job"],
                    sha256=row["sha256"],
                    received_at=row["received_at"].isoformat(),
                    report=GateReport.model_validate_json(row["report"]) if row["report"] else None,
                    problem=row["problem"],
                )
                for row in rows
            ]
        )

    async def judged(self, namespace: str, verdict: JudgedGates) -> bool:
        """Puts how a candidate's gates ended into the audit chain, once; False when it is there already.

        Raises:
            Unavailable: nothing was written.
        """
        key = (namespace, verdict.model_deployment, verdict.revision, verdict.started_at)
        async with self._db.tenant(namespace) as connection:
            new = await connection.fetchval(_JUDGED, *key, verdict.model_dump_json())
            if new:
                told = {
                    "revision": verdict.revision,
                    "passed": verdict.passed,
                    "approved_by": verdict.approved_by or "",
                    "suites": {item.suite: item.message for item in verdict.verdicts},
                    "reports": {item.suite: item.report_sha256 or "" for item in verdict.verdicts},
                }
                subject = f"model-deployment/{verdict.model_deployment}"
                await note(connection, namespace, "gates.judged", subject, told)
        return bool(new)


def _read_file(path: Path) -> tuple[GateReport | None, str]:
    return _read(path.read_bytes())


def _read(content: bytes) -> tuple[GateReport | None, str]:
    try:
        report = _READER.read(content)
        # A count that stands there twice could be read either way, and the better one must not be.
        json.loads(content, object_pairs_hook=_once)
        if "\\u0000" in report.model_dump_json():
            return None, "report.json: a text has a NUL character: leave it out"
        return report, ""
    except _Twice as twice:
        return None, str(twice)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "report.json"
        return None, f"{where}: {first['msg']}"[:1024]


class _Twice(Exception):
    """A key stands in an object twice."""


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Twice(f"{twice[:63]}: it stands in an object twice: write each key once")
    return found
