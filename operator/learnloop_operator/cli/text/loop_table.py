"""Agents, runs and rollouts as rows of one table."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.access.cluster import Object
from learnloop_operator.cli.text.aligned_rows import condition, number
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.core.durations import text as duration

HEAD = ("NAME", "PHASE", "STEP", "WEIGHT", "DONE", "ETA", "RETURN", "WHY")
SHORT = {"learningagents": "la", "trainingjobs": "tjob", "modeldeployments": "mdep"}
Row = tuple[str, ...]


def row(plural: str, body: Object, now: datetime) -> Row:
    """One object's row; an empty cell where it has nothing to say."""
    status = status_of(body)
    cells = {"learningagents": _agent, "trainingjobs": _job, "modeldeployments": _rollout}[plural](status, now)
    why = status.get("verdict") or condition(body, "Ready").get("message") or "the operator has not looked at it yet"
    return (f"{SHORT[plural]}/{body['metadata']['name']}", status.get("phase") or "", *cells, one_line(why))


def table(rows: Iterable[Row], width: int | None = None) -> str:
    """Aligned columns; lines cut at `width`, for a terminal."""
    lines = [HEAD, *rows]
    sizes = [max(len(line[index]) for line in lines) for index in range(len(HEAD) - 1)]

    def text(line: Sequence[str]) -> str:
        cells = [f"{cell:<{size}}" for cell, size in zip(line, sizes, strict=False)]
        return "  ".join([*cells, line[-1]]).rstrip()[:width]

    return "\n".join(map(text, lines))


def line(cells: Row) -> str:
    """The row alone, for a pipe: every cell with its name, empty ones left out."""
    named = (f"{name.lower()}={cell}" for name, cell in zip(HEAD[1:-1], cells[1:-1], strict=True) if cell)
    return " ".join([cells[0], *named, cells[-1]])


def _agent(status: Object, now: datetime) -> Row:
    return ("", status.get("weight") or "", "", "", number(status.get("recentReturn")) or "")


def _job(status: Object, now: datetime) -> Row:
    step, total = status.get("step"), status.get("totalSteps")
    done = "" if step is None else f"{step}/{total}" if total else str(step)
    returned = status.get("return") or number((status.get("recentReturn") or {}).get("mean")) or ""
    return (done, "", status.get("progress") or "", status.get("eta") or "", returned)


def _rollout(status: Object, now: datetime) -> Row:
    canary, stable = status.get("canary") or {}, status.get("stable") or {}
    weight = "" if status.get("weight") is None else f"{status['weight']}%"
    ours, theirs = number(canary.get("meanReturn")), number(stable.get("meanReturn"))
    returned = f"{ours} vs {theirs or '?'}" if ours else theirs or ""
    return (status.get("stepText") or "", weight, _done(status), _eta(status, now), returned)


def _done(status: Object) -> str:
    """Share of the episodes that the sequential tests still need, as far as they know."""
    canary, evidence = status.get("canary") or {}, status.get("evidence") or []
    needed = max((item.get("neededEpisodes") or 0 for item in evidence), default=0)
    played = canary.get("episodes") or 0
    return f"{100 * played // (played + needed)}%" if needed and played else ""


def _eta(status: Object, now: datetime) -> str:
    """Time until the last test is due."""
    due = [item["estimatedAt"] for item in status.get("evidence") or [] if item.get("estimatedAt")]
    if not due:
        return ""
    left = (datetime.fromisoformat(max(due)) - now).total_seconds()
    return duration(left) if left > 0 else "now"
