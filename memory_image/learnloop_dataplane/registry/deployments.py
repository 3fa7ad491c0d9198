"""Models that serve and that were rolled back, by the operator's account: a record and an event of every change."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.deployment import (
    GateReport,
    GateReports,
    JudgedGates,
    ModelDeployed,
    RolloutDecision,
    ServedModel,
    StoredReport,
    Validation,
)
from learnloop_dataplane.audit.chain import note, note_once
from learnloop_dataplane.blobs.blob_store import Spooled
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.registry.artifacts import Artifacts
from learnloop_dataplane.strict_json import StrictReader

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_HISTORY = """
SELECT payload, created_at, message_id FROM event_outbox
WHERE namespace = $1 AND subject = $2 AND (created_at, message_id) < ($4, $5)
ORDER BY created_at DESC, message_id DESC LIMIT $3
"""
_SERVES = "SELECT serving FROM served_models WHERE namespace = $1 AND model_deployment = $2"
_NOW_SERVES = """
INSERT INTO served_models (namespace, model_deployment, serving) VALUES ($1, $2, $3)
ON CONFLICT (namespace, model_deployment) DO UPDATE SET serving = excluded.serving, told_at = now()
"""
_NOW_ROLLED_BACK = """
INSERT INTO served_models (namespace, model_deployment, rolled_back) VALUES ($1, $2, $3)
ON CONFLICT (namespace, model_deployment) DO UPDATE SET rolled_back = excluded.rolled_back, told_at = now()
"""
_LIST = """
SELECT model_deployment, serving, rolled_back FROM served_models
WHERE namespace = $1 AND model_deployment > $2 ORDER BY model_deployment LIMIT $3
"""
_FORGET = "DELETE FROM served_models WHERE namespace = $1 AND model_deployment = $2"
_PROOF = """
SELECT job, manifest FROM training_runs
WHERE namespace = $1 AND manifest ->> 'artifact_sha256' = $2 ORDER BY created_at DESC LIMIT 1
"""
_NEWEST = (datetime(9999, 12, 31, tzinfo=UTC), "")


class Deployments:
    """Changes that the operator sends, published as `agent.rl.model.deployed.v1.<namespace>.<model deployment>`.

    Args:
        arrived: called with a namespace in whose outbox an event waits.
    """

    def __init__(self, db: Database, outbox: EventOutbox, arrived: Callable[[str], None]) -> None:
        self._db = db
        self._outbox = outbox
        self._arrived = arrived

    async def put(self, namespace: str, event: ModelDeployed) -> bool:
        """Keeps a change; False when that revision serves already. Idempotent."""
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_LOCK, _subject(namespace, event))
            serving = await connection.fetchval(_SERVES, namespace, event.model_deployment)
            if serving and ModelDeployed.model_validate_json(serving).revision == event.revision:
                return False
            identity = f"{namespace}/deployed/{uuid7()}"
            new = await self._keep(connection, namespace, event, identity, _NOW_SERVES, "model.deployed")
        if new:
            self._arrived(namespace)
        return new

    async def roll_back(self, namespace: str, event: ModelDeployed) -> bool:
        """Keeps a rollback; False when it is known: the same revision at the same time."""
        moment = event.deployed_at.isoformat()
        identity = f"{namespace}/rolled-back/{event.model_deployment}/{event.revision}/{moment}"
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_LOCK, _subject(namespace, event))
            new = await self._keep(connection, namespace, event, identity, _NOW_ROLLED_BACK, "model.rolled_back")
        if new:
            self._arrived(namespace)
        return new

    async def decided(self, namespace: str, identity: str, decision: RolloutDecision) -> bool:
        """Puts a decision into the audit chain; False when it is there, among the newest records of the namespace."""
        subject = f"model-deployment/{decision.model_deployment}"
        detail = decision.model_dump(mode="json", exclude={"model_deployment", "outcome"})
        key = {"identity": identity, "outcome": decision.outcome}
        async with self._db.tenant(namespace) as connection:
            return await note_once(connection, namespace, "rollout.decision", subject, detail, **key)

    async def _keep(
        self, connection: Any, namespace: str, event: ModelDeployed, identity: str, statement: str, action: str
    ) -> bool:
        event = event.model_copy(update={"validation": await _validation(connection, namespace, event.sha256)})
        body = event.model_dump_json()
        if not await self._outbox.put(connection, namespace, _subject(namespace, event), identity, body.encode()):
            return False
        await connection.execute(statement, namespace, event.model_deployment, body)
        detail = {
            "revision": event.revision,
            "previous": event.previous_revision,
            "sha256": event.sha256,
            "verdict": event.verdict,
            "gates": {item.suite: item.report_sha256 or "" for item in event.gates},
            "approved_by": event.approved_by,
        }
        await note(connection, namespace, action, f"model-deployment/{event.model_deployment}", detail)
        return True

    async def models(self, namespace: str, limit: int, after: str = "") -> list[ServedModel]:
        """The serving model of each ModelDeployment, by name, beginning after `after`."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_LIST, namespace, after, limit)
        return [
            ServedModel(
                model_deployment=row["model_deployment"],
                serving=_read(row["serving"]),
                rolled_back=_read(row["rolled_back"]),
            )
            for row in rows
        ]

    async def forget(self, namespace: str, deployment: str) -> None:
        """Takes a deleted ModelDeployment off the list; its history stays on record."""
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_FORGET, namespace, deployment)

    async def history(
        self, namespace: str, deployment: str, limit: int, before: tuple[Any, ...] | None = None
    ) -> tuple[list[ModelDeployed], tuple[datetime, str] | None]:
        """The newest changes of one ModelDeployment, newest first, those before a time and message; and the time and
        message of the last one where there may be more."""
        subject = f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{deployment}"
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_HISTORY, namespace, subject, limit, *(before or _NEWEST))
        more = (rows[-1]["created_at"], rows[-1]["message_id"]) if len(rows) == limit else None
        return [ModelDeployed.model_validate_json(row["payload"]) for row in rows], more


async def _validation(connection: Any, namespace: str, sha256: str | None) -> Validation | None:
    """The proof of the artifact's own training run, as long as the run is on record."""
    row = await connection.fetchrow(_PROOF, namespace, sha256) if sha256 else None
    if row is None:
        return None
    proof = orjson.loads(row["manifest"])
    return Validation.model_validate(
        {
            "job": row["job"],
            "evaluation": proof["evaluation"],
            "baseline": proof["baseline"],
            "difference": proof.get("difference"),
        }
    )


def _read(payload: str | None) -> ModelDeployed | None:
    return ModelDeployed.model_validate_json(payload) if payload else None


def _subject(namespace: str, event: ModelDeployed) -> str:
    return f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{event.model_deployment}"


MOST = 64
_PUT = """
INSERT INTO gate_reports (namespace, model_deployment, job, sha256, report, problem) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, job) DO NOTHING RETURNING 1
"""
_GET = "SELECT sha256 FROM gate_reports WHERE namespace = $1 AND job = $2"
_GATE_REPORTS_LIST = """
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

        Invalid bytes are kept too, with the reason.

        Raises:
            ApiError: 409, this Job has handed in another report.
            Unavailable: not kept; sending it again is safe.
        """
        report, problem = read_report(await asyncio.to_thread(upload.path.read_bytes))
        await self._artifacts.put(namespace, upload)
        content = report.model_dump_json() if report else None
        async with self._db.tenant(namespace) as connection:
            new = await connection.fetchval(_PUT, namespace, deployment, job, upload.sha256, content, problem)
            if not new:
                first = await connection.fetchval(_GET, namespace, job)
                if first != upload.sha256:
                    message = f"this Job has sent another report ({first}): a suite reports once"
                    raise ApiError(409, message, field="x-learnloop-sha256", value=upload.sha256)
                return False
            detail = {"job": job, "sha256": upload.sha256, "suite": report.suite if report else "", "problem": problem}
            await note(connection, namespace, "gate.reported", f"model-deployment/{deployment}", detail)
        return True

    async def reports(self, namespace: str, deployment: str) -> GateReports:
        """The newest reports of a ModelDeployment's suites."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_GATE_REPORTS_LIST, namespace, deployment, MOST)
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
        """Puts how a candidate's gates ended into the audit chain, once; False when it is there already."""
        key = (namespace, verdict.model_deployment, verdict.revision, verdict.started_at)
        async with self._db.tenant(namespace) as connection:
            new = await connection.fetchval(_JUDGED, *key, verdict.model_dump_json())
            if new:
                detail = {
                    "revision": verdict.revision,
                    "passed": verdict.passed,
                    "approved_by": verdict.approved_by or "",
                    "suites": {item.suite: item.message for item in verdict.verdicts},
                    "reports": {item.suite: item.report_sha256 or "" for item in verdict.verdicts},
                }
                subject = f"model-deployment/{verdict.model_deployment}"
                await note(connection, namespace, "gates.judged", subject, detail)
        return bool(new)


def read_report(content: bytes) -> tuple[GateReport | None, str]:
    try:
        report = _READER.read(content)
        if "\\u0000" in report.model_dump_json():
            return None, "report.json: a text has a NUL character: leave it out"
        return report, ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "report.json"
        return None, f"{where}: {first['msg']}"[:1024]
