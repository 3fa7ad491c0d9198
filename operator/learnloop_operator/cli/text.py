"""Text for terminals: labelled lines and tables."""

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

WIDEST = 100_000


def rows(pairs: Iterable[tuple[str, Any]]) -> str:
    """`label  value` lines; pairs without a value are left out."""
    present = [(label, value) for label, value in pairs if value not in (None, "", [])]
    width = max((len(label) for label, _ in present), default=0)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in present)


def number(value: Any) -> str | None:
    """A figure, or None where there is none yet."""
    return None if value is None else f"{float(value):.1f}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, no_wrap=True) for name in head]
    grid = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="none")
    for line in lines:
        grid.add_row(*(Text(cell) for cell in line))
    out = StringIO()
    Console(file=out, width=WIDEST, color_system=None, force_terminal=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
