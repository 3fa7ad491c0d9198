"""Daily and weekly reports of each namespace, sent to whoever wants them: once each, whoever is killed between.

A report has one id for its namespace and period, so of two processes that write it, or one that begins again, the
second one finds it there. A period in which nothing happened has none.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from learnloop_api import names
from learnloop_common.foreign_text import figure, interval, one_line, plain
from learnloop_dataplane.notifications.messages import MOST_TEXT
from learnloop_dataplane.notifications.outbox import Notifications
from learnloop_dataplane.postgres.database import Database

LATE = timedelta(hours=12)
"""A report that is due longer than that is not sent any more."""
MOST_EVENTS = 2000
MOST_LINES = 20
"""Of one part; what is left out is counted."""
_PERIODS = {"daily": timedelta(days=1), "weekly": timedelta(days=7)}
_EVENTS = """
SELECT subject, payload FROM event_outbox
WHERE namespace = $1 AND created_at >= $2 AND created_at < $3
    AND (starts_with(subject, $4) OR starts_with(subject, $5))
ORDER BY created_at DESC LIMIT $6
"""
_WAITING = """
SELECT DISTINCT payload FROM notifications
WHERE namespace = $1 AND event = 'approval.waiting' AND created_at < $2 AND given_up_at IS NULL
    AND problem IS DISTINCT FROM 'it waits no more'
"""


class Reports:
    """`hour`: of the day in UTC at which reports are due; weekly ones on Mondays."""

    def __init__(self, db: Database, notifications: Notifications, hour: int) -> None:
        self._db, self._notifications, self._hour = db, notifications, hour
        self._written: dict[tuple[str, str], datetime] = {}

    async def run(self, namespace: str) -> int:
        """Writes the reports that are due; returns how many.

        Raises:
            Unavailable: PostgreSQL is away; what was not written is written by a later look.
        """
        now, count = datetime.now(UTC), 0
        for period in _PERIODS:
            until = due(now, period, self._hour)
            if not self._notifications.wanted(namespace, f"report.{period}"):
                continue
            if self._written.get((namespace, period)) != until and now - until <= LATE:
                count += await self._write(namespace, period, until)
            self._written[namespace, period] = until
        return count

    async def _write(self, namespace: str, period: str, until: datetime) -> int:
        since = until - _PERIODS[period]
        kinds = (f"{names.SUBJECT_TRAINING_STATUS}.", f"{names.SUBJECT_MODEL_DEPLOYED}.")
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_EVENTS, namespace, since, until, *kinds, MOST_EVENTS)
            waits = await connection.fetch(_WAITING, namespace, until)
            happened = [(row["subject"], orjson.loads(row["payload"])) for row in reversed(rows)]
            waiting = [orjson.loads(row["payload"]) for row in waits]
            found = report(namespace, period, since, until, happened, waiting, cut=len(rows) == MOST_EVENTS)
            if found is None:
                return 0
            identity = f"{namespace}/report/{period}/{until:%Y-%m-%d}"
            await self._notifications.tell(
                connection, namespace, f"report.{period}", identity, orjson.dumps(found), to=None
            )
        return 1


def due(now: datetime, period: str, hour: int) -> datetime:
    """The newest moment at which a report of this period was due."""
    today = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    newest = today if today <= now else today - timedelta(days=1)
    return newest - timedelta(days=newest.weekday()) if period == "weekly" else newest


def report(
    namespace: str,
    period: str,
    since: datetime,
    until: datetime,
    happened: Sequence[tuple[str, Mapping[str, Any]]],
    waiting: Sequence[Mapping[str, Any]],
    *,
    cut: bool = False,
) -> dict[str, Any] | None:
    """What got better, what was refused, rolled back, or waits; None: nothing happened.

    `text` is for those that show it as it is; `markdown` is for those that render it, and says no more than that.

    Args:
        cut: there was more than what is given, and the report says so.
    """
    models = [event for subject, event in happened if subject.startswith(names.SUBJECT_MODEL_DEPLOYED)]
    ends = [event for subject, event in happened if subject.startswith(names.SUBJECT_TRAINING_STATUS)]
    proven = [event for event in ends if event.get("status") == "completed"]
    failed = [event for event in ends if event.get("status") == "failed"]
    back = [event for event in models if event.get("event") == "rolled_back"]
    served = [event for event in models if event.get("event") != "rolled_back"]
    if not (proven or failed or models or waiting):
        return None
    told = (
        f"{namespace}, {since:%Y-%m-%d} to {until:%Y-%m-%d}: {len(proven)} of {len(proven) + len(failed)} runs were "
        f"proven, {len(served)} models came to serve everybody, {len(back)} were rolled back, {len(waiting)} wait for "
        "a person."
    )
    told += f" Older events than the newest {MOST_EVENTS:,} of that time are not counted." if cut else ""
    parts = {
        "What got better": [_better(event) for event in proven],
        "What was refused or failed": [f"{_run(event)}: {_why(event)}" for event in failed],
        "What serves everybody": [_model(event) for event in served],
        "What was rolled back": [_model(event) for event in back],
        "What waits for a person": [_waits(event) for event in waiting],
    }
    return {
        "namespace": namespace,
        "period": period,
        "since": since.isoformat(),
        "until": until.isoformat(),
        "proven": [_figures(event) for event in proven[:MOST_LINES]],
        "failed": [_figures(event) for event in failed[:MOST_LINES]],
        "served": [_served(event) for event in served[:MOST_LINES]],
        "rolled_back": [_served(event) for event in back[:MOST_LINES]],
        "waiting": [dict(event) for event in waiting[:MOST_LINES]],
        "text": _written(told, parts, one_line)[:MOST_TEXT],
        "markdown": _written(told, parts, plain),
    }


def _written(told: str, parts: Mapping[str, Sequence[str]], safe: Callable[[str], str]) -> str:
    lines = [told]
    for title, found in parts.items():
        if found:
            lines += ["", f"## {title}", *(f"- {safe(line)}" for line in found[:MOST_LINES])]
        if len(found) > MOST_LINES:
            lines.append(f"- and {len(found) - MOST_LINES} more")
    return "\n".join(lines)


def _run(event: Mapping[str, Any]) -> str:
    whose = f" of {event['agent']}" if event.get("agent") else ""
    return f"{event.get('job')}{whose}"


def _better(event: Mapping[str, Any]) -> str:
    new, old = event.get("evaluation"), event.get("baseline")
    if not new or not old:
        return f"{_run(event)}: {event.get('message') or 'validated'}"
    gain = new["mean"] - old["mean"]
    more = "more" if gain >= 0 else "less"
    return f"{_run(event)}: held-out return {_interval(new)}, {figure(abs(gain))} {more} than {_interval(old)} before"


def _interval(estimate: Mapping[str, Any]) -> str:
    return interval(estimate["mean"], estimate["ci_low"], estimate["ci_high"])


def _why(event: Mapping[str, Any]) -> str:
    return str((event.get("error") or {}).get("message") or event.get("message") or "")


def _model(event: Mapping[str, Any]) -> str:
    return f"{event.get('model_deployment')}: {event.get('revision')}: {event.get('verdict')}"


def _waits(event: Mapping[str, Any]) -> str:
    return f"{event.get('model_deployment')}: {event.get('revision')}: {event.get('message') or 'waits for approval'}"


def _figures(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event.get(name) for name in ("job", "agent", "evaluation", "baseline", "gates", "error")}


def _served(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event.get(name) for name in ("model_deployment", "revision", "reason", "verdict", "deployed_at")}
