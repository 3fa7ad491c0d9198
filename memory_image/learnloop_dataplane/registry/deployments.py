"""Models that serve and that were rolled back, by the operator's account: a record and an event of every change."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pydantic import ValidationError
from sqlmodel import col, func, select, tuple_

from learnloop_api import names
from learnloop_api.wire.deployment import (
    DeploymentOutcomes,
    GateReport,
    GateReports,
    JudgedGates,
    ModelDeployed,
    RevisionOutcomes,
    RolloutDecision,
    ServedModel,
    StoredReport,
    Validation,
)
from learnloop_dataplane import blobs, errors, strict_json
from learnloop_dataplane.audit.chain import note, note_once
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres import database, experience_tables
from learnloop_dataplane.postgres.event_tables import GateReportRow, GateVerdictRow, OutboxEvent, ServedModelRow
from learnloop_dataplane.registry.artifacts import Artifacts

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_NEWEST = (datetime(9999, 12, 31, tzinfo=UTC), "")


class Deployments:
    """Changes that the operator sends, published as `agent.rl.model.deployed.v1.<namespace>.<model deployment>`.

    Args:
        arrived: called with a namespace in whose outbox an event waits.
    """

    def __init__(self, db: database.Database, outbox: EventOutbox, arrived: Callable[[str], None]) -> None:
        self._db = db
        self._outbox = outbox
        self._arrived = arrived

    async def put(self, namespace: str, event: ModelDeployed) -> bool:
        """Keeps a change; False when that revision serves already. Idempotent."""
        async with self._db.session(namespace) as session:
            await session.raw.execute(_LOCK, _subject(namespace, event))
            row = await session.get(ServedModelRow, (namespace, event.model_deployment))
            serving = _read(row.serving) if row else None
            if serving and serving.revision == event.revision:
                return False
            new = await self._keep(session, namespace, event, f"{namespace}/deployed/{database.uuid7()}", "serving")
        if new:
            self._arrived(namespace)
        return new

    async def roll_back(self, namespace: str, event: ModelDeployed) -> bool:
        """Keeps a rollback; False when it is known: the same revision at the same time."""
        moment = event.deployed_at.isoformat()
        identity = f"{namespace}/rolled-back/{event.model_deployment}/{event.revision}/{moment}"
        async with self._db.session(namespace) as session:
            await session.raw.execute(_LOCK, _subject(namespace, event))
            new = await self._keep(session, namespace, event, identity, "rolled_back")
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
        self, session: database.Session, namespace: str, event: ModelDeployed, identity: str, column: str
    ) -> bool:
        validation = await _validation(session, namespace, event.sha256)
        validation = validation or await _published(session, _subject(namespace, event), event.sha256)
        event = event.model_copy(update={"validation": validation})
        body = event.model_dump_json()
        if not await self._outbox.put(session.raw, namespace, _subject(namespace, event), identity, body.encode()):
            return False
        row = await session.locked(ServedModelRow(namespace=namespace, model_deployment=event.model_deployment))
        row.sqlmodel_update({column: body, "published_at": func.now()})
        detail = {
            "revision": event.revision,
            "previous": event.previous_revision,
            "sha256": event.sha256,
            "verdict": event.verdict,
            "gates": {item.suite: item.report_sha256 or "" for item in event.gates},
            "approved_by": event.approved_by,
        }
        action = "model.deployed" if column == "serving" else "model.rolled_back"
        await note(session.raw, namespace, action, f"model-deployment/{event.model_deployment}", detail)
        return True

    async def models(self, namespace: str, limit: int, after: str = "") -> list[ServedModel]:
        """The serving model of each ModelDeployment, by name, beginning after `after`."""
        served = select(ServedModelRow).filter_by(namespace=namespace).where(ServedModelRow.model_deployment > after)
        async with self._db.session(namespace) as session:
            rows = (await session.exec(served.order_by(ServedModelRow.model_deployment).limit(limit))).all()
        return [
            ServedModel(
                model_deployment=row.model_deployment, serving=_read(row.serving), rolled_back=_read(row.rolled_back)
            )
            for row in rows
        ]

    async def forget(self, namespace: str, deployment: str) -> None:
        """Takes a deleted ModelDeployment off the list; its history stays on record."""
        async with self._db.session(namespace) as session:
            if row := await session.get(ServedModelRow, (namespace, deployment), with_for_update=True):
                await session.delete(row)

    async def history(
        self, namespace: str, deployment: str, limit: int, before: tuple[object, ...] | None = None
    ) -> tuple[list[ModelDeployed], tuple[datetime, str] | None]:
        """The newest changes of one ModelDeployment, newest first, those before a time and message; and the time and
        message of the last one where there may be more."""
        created_at, message_id = col(OutboxEvent.created_at), col(OutboxEvent.message_id)
        subject = f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{deployment}"
        events = select(OutboxEvent).filter_by(namespace=namespace, subject=subject).limit(limit)
        earlier = events.where(tuple_(created_at, message_id) < (before or _NEWEST))
        async with self._db.session(namespace) as session:
            rows = (await session.exec(earlier.order_by(created_at.desc(), message_id.desc()))).all()
        more = (rows[-1].created_at, rows[-1].message_id) if len(rows) == limit else None
        return [ModelDeployed.model_validate_json(row.payload) for row in rows], more


async def _validation(session: database.Session, namespace: str, sha256: str | None) -> Validation | None:
    """The proof of the artifact's own training run, as long as the run is on record."""
    if not sha256:
        return None
    made_it = col(experience_tables.TrainingRunRow.proof)["artifact_sha256"].astext == sha256
    runs = select(experience_tables.TrainingRunRow).filter_by(namespace=namespace).where(made_it)
    run = (await session.exec(runs.order_by(col(experience_tables.TrainingRunRow.created_at).desc()).limit(1))).first()
    if run is None or run.proof is None:
        return None
    proof = {name: run.proof.get(name) for name in ("evaluation", "baseline", "difference")}
    return Validation.model_validate({"job": run.job, **proof})


async def _published(session: database.Session, subject: str, sha256: str | None) -> Validation | None:
    """The proof of an artifact as this ModelDeployment's news gave it; its run has made other updates since."""
    news = select(OutboxEvent).filter_by(subject=subject).order_by(col(OutboxEvent.created_at).desc()).limit(MOST)
    events = [ModelDeployed.model_validate_json(row.payload) for row in (await session.exec(news)).all()]
    return next((one.validation for one in events if sha256 and one.sha256 == sha256 and one.validation), None)


def _read(payload: str | None) -> ModelDeployed | None:
    return ModelDeployed.model_validate_json(payload) if payload else None


def _subject(namespace: str, event: ModelDeployed) -> str:
    return f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{event.model_deployment}"


MOST = 64
_READER = strict_json.StrictReader(GateReport)


class GateRecords:
    """The reports and verdicts of one data plane."""

    def __init__(self, db: database.Database, artifacts: Artifacts) -> None:
        self._db = db
        self._artifacts = artifacts

    async def put(self, namespace: str, deployment: str, job: str, upload: blobs.Spooled) -> bool:
        """Keeps a report as an artifact, and what it says; False when the same one is there already.

        Invalid bytes are kept too, with the reason.

        Raises:
            ApiError: 409, this Job has handed in another report.
            Unavailable: not kept; sending it again is safe.
        """
        report, problem = read_report(await asyncio.to_thread(upload.file.read))
        await self._artifacts.put(namespace, upload)
        row = GateReportRow(
            namespace=namespace,
            job=job,
            model_deployment=deployment,
            sha256=upload.sha256,
            report=report.model_dump(mode="json") if report else None,
            problem=problem,
        )
        async with self._db.session(namespace) as session:
            if not await session.insert(row):
                first = await session.get_one(GateReportRow, (namespace, job))
                if first.sha256 != upload.sha256:
                    message = f"this Job has sent another report ({first.sha256}): a suite reports once"
                    raise errors.ApiError(409, message, field="x-learnloop-sha256", value=upload.sha256)
                return False
            detail = {"job": job, "sha256": upload.sha256, "suite": report.suite if report else "", "problem": problem}
            await note(session.raw, namespace, "gate.reported", f"model-deployment/{deployment}", detail)
        return True

    async def reports(self, namespace: str, deployment: str) -> GateReports:
        """The newest reports of a ModelDeployment's suites."""
        reports = select(GateReportRow).filter_by(namespace=namespace, model_deployment=deployment).limit(MOST)
        async with self._db.session(namespace) as session:
            newest = reports.order_by(col(GateReportRow.received_at).desc(), GateReportRow.job)
            rows = (await session.exec(newest)).all()
        stored = [row.model_dump(include={"job", "sha256", "report", "problem", "received_at"}) for row in rows]
        reports_read = [StoredReport(**row | {"received_at": row["received_at"].isoformat()}) for row in stored]
        return GateReports(reports=reports_read)

    async def judged(self, namespace: str, verdict: JudgedGates) -> bool:
        """Puts how a candidate's gates ended into the audit chain, once; False when it is there already."""
        key = verdict.model_dump(include={"model_deployment", "revision", "started_at"})
        row = GateVerdictRow(namespace=namespace, **key, verdict=verdict.model_dump(mode="json"))
        async with self._db.session(namespace) as session:
            new = await session.insert(row)
            if new:
                detail = {
                    "revision": verdict.revision,
                    "passed": verdict.passed,
                    "approved_by": verdict.approved_by or "",
                    "suites": {item.suite: item.message for item in verdict.verdicts},
                    "reports": {item.suite: item.report_sha256 or "" for item in verdict.verdicts},
                }
                subject = f"model-deployment/{verdict.model_deployment}"
                await note(session.raw, namespace, "gates.judged", subject, detail)
        return new


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


# Normalisation would hide what both arms share, so raw rewards count; what a constraint took away stays taken away. The
# opinions are read from where each person's is: an episode's outcome value `feedback` may be its agent's own invention.
_OUTCOMES = """
SELECT w.revision, count(t.trajectory_id) AS episodes, count(r.value) AS rewarded,
    coalesce(sum(r.value), 0)::float8 AS reward_sum, count(f.value) AS rated,
    coalesce(sum(f.value), 0)::float8 AS feedback_sum
FROM unnest($3::text[]) AS w(revision)
LEFT JOIN trajectories t ON t.namespace = $1 AND t.model_deployment = $2 AND t.policy_revision = w.revision
    AND t.received_at >= now() - make_interval(secs => $4) AND t.status <> 'withdrawn'
LEFT JOIN LATERAL (
    SELECT CASE WHEN h.violated = '[]'::jsonb THEN h.raw_reward ELSE least(h.raw_reward, h.reward) END AS value
    FROM reward_history h WHERE h.namespace = $1 AND h.trajectory_id = t.trajectory_id AND t.reward IS NOT NULL
        AND h.reward_policy_revision = t.reward_policy_revision
    ORDER BY h.created_at DESC LIMIT 1) r ON true
LEFT JOIN LATERAL (
    SELECT avg(u.value) AS value FROM user_feedback u
    WHERE u.namespace = $1 AND u.trajectory_id = t.trajectory_id) f ON true
GROUP BY w.revision ORDER BY w.revision
"""


async def revision_outcomes(
    db: database.Database, namespace: str, deployment: str, revisions: Sequence[str], seconds: int
) -> DeploymentOutcomes:
    """Counts of each revision, also of those without an episode, over episodes that arrived in the last `seconds`."""
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_OUTCOMES, namespace, deployment, sorted(set(revisions)), float(seconds))
    return DeploymentOutcomes(seconds=seconds, revisions=[RevisionOutcomes.model_validate(dict(row)) for row in rows])
