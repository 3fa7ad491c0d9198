"""Text for terminals: labelled lines, tables, and agents, runs and rollouts as rows of one table."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from learnloop_common.foreign_text import one_line
from learnloop_operator.cli.objects import SHORT, Object, condition
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.core.times import text as duration

HEAD = ("NAME", "PHASE", "STEP", "WEIGHT", "DONE", "ETA", "RETURN", "WHY")
WIDEST = 100_000
Row = tuple[str, ...]


def rows(pairs: Iterable[tuple[str, Any]]) -> str:
    """`label  value` lines; pairs without a value are left out."""
    present = [(label, value) for label, value in pairs if value not in (None, "", [])]
    width = max((len(label) for label, _ in present), default=0)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in present)


def number(value: Any, digits: int = 1) -> str | None:
    """A figure, or None where there is none yet."""
    return None if value is None else f"{float(value):.{digits}f}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]], width: int | None = None) -> str:
    """Aligned columns, two spaces apart; lines cut at `width`, for a terminal."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, no_wrap=True) for name in head]
    grid = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="none")
    for line in lines:
        grid.add_row(*(Text(cell) for cell in line))
    out = StringIO()
    Console(file=out, width=WIDEST, color_system=None, force_terminal=False).print(grid)
    return "\n".join(line.rstrip()[:width] for line in out.getvalue().splitlines())


def loop_row(plural: str, body: Object, now: datetime) -> Row:
    """One object's row of HEAD; an empty cell where it has no figure."""
    status = status_of(body)
    cells = {"learningagents": _agent, "trainingjobs": _job, "modeldeployments": _rollout}[plural](status, now)
    why = status.get("verdict") or condition(body, "Ready").get("message") or "the operator has not looked at it yet"
    return (f"{SHORT[plural]}/{body['metadata']['name']}", status.get("phase") or "", *cells, one_line(why))


def loop_line(cells: Row) -> str:
    """The row alone, for a pipe: every cell with its name, empty ones left out."""
    named = (f"{name.lower()}={cell}" for name, cell in zip(HEAD[1:-1], cells[1:-1], strict=True) if cell)
    return " ".join([cells[0], *named, cells[-1]])


def _agent(status: Object, now: datetime) -> Row:
    return ("", status.get("weight") or "", "", "", number(status.get("recentReturn")) or "")


def _job(status: Object, now: datetime) -> Row:
    step, total = status.get("step"), status.get("totalSteps")
    done = "" if step is None else f"{step}/{total}" if total else str(step)
    mean = status.get("return") or number((status.get("recentReturn") or {}).get("mean")) or ""
    return (done, "", status.get("progress") or "", status.get("eta") or "", mean)


def _rollout(status: Object, now: datetime) -> Row:
    canary, stable, evidence = (
        status.get("canary") or {},
        status.get("stable") or {},
        status.get("evidence") or [],
    )
    weight = "" if status.get("weight") is None else f"{status['weight']}%"
    new, old = number(canary.get("meanReturn")), number(stable.get("meanReturn"))
    mean = f"{new} vs {old or '?'}" if new else old or ""
    # Progress of the sequential test that needs the most episodes, and when the last one is due.
    needed, played = max((item.get("neededEpisodes") or 0 for item in evidence), default=0), canary.get("episodes") or 0
    done = f"{100 * played // (played + needed)}%" if needed and played else ""
    due, eta = [item["estimatedAt"] for item in evidence if item.get("estimatedAt")], ""
    if due:
        left = (datetime.fromisoformat(max(due)) - now).total_seconds()
        eta = duration(left) if left > 0 else "now"
    return (status.get("stepText") or "", weight, done, eta, mean)
