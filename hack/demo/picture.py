"""Draws a run as one SVG: the mean return of users' episodes, and the canary's weight below it."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from demo.recorder import Sample

WIDTH, HEIGHT = 820, 340
LEFT, RIGHT, TOP, MIDDLE, BOTTOM = 56, 16, 34, 220, 300
WINDOW_SECONDS = 5.0
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #57606a }
  .title { font-size: 14px; font-weight: 600; fill: #24292f }
  .axis { stroke: #d0d7de; stroke-width: 1 }
  .return { fill: none; stroke: #0969da; stroke-width: 2 }
  .weight { fill: #bf8700; fill-opacity: .35; stroke: #bf8700 }
  .training { fill: #8250df; fill-opacity: .10 }
  .back { stroke: #cf222e; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc } .axis { stroke: #3d444d }
    .return { stroke: #4493f8 } .weight { fill: #d29922; stroke: #d29922 } .back { stroke: #f85149 }
  }
"""


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Writes the picture. Raises ValueError when no episode has ended."""
    if not any(item.episodes for item in samples):
        raise ValueError("no episode ended, so there is nothing to draw")
    end = samples[-1].seconds
    tick = 30 * (1 + int(end) // 450)  # labels of a long run would cover one another
    means = list(_means(samples))
    top = max(mean for _, mean in means) * 1.05

    def x(seconds: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / end, 1)

    def y(mean: float) -> float:
        return round(MIDDLE - (MIDDLE - TOP) * max(mean, 0.0) / top, 1)

    def level(weight: int) -> float:
        return round(BOTTOM - (BOTTOM - MIDDLE - 24) * weight / 100, 1)

    line = " ".join(f"{x(seconds)},{y(mean)}" for seconds, mean in means)
    steps = " ".join(f"{x(item.seconds)},{level(item.weight)}" for item in _corners(samples))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Mean return of episodes and weight of the canary over time">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="18">mean return of the episodes that users see</text>',
        *_bands(samples, x),
        *(f'<text x="8" y="{y(value) + 4}">{value:.0f}</text>' for value in (0, top / 2.1, top / 1.05)),
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{MIDDLE}" y2="{MIDDLE}"/>',
        f'<polyline class="return" points="{line}"/>',
        f'<text class="title" x="{LEFT}" y="{MIDDLE + 18}">weight of the canary, %</text>',
        *(f'<text x="8" y="{level(value) + 4}">{value}</text>' for value in (0, 100)),
        f'<polygon class="weight" points="{x(0)},{BOTTOM} {steps} {x(end)},{BOTTOM}"/>',
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>',
        *_marks(samples, x),
        *(f'<text x="{x(second) - 8}" y="{BOTTOM + 16}">{second} s</text>' for second in range(0, int(end) + 1, tick)),
        "</svg>",
    ]
    path.write_text("\n".join(parts) + "\n")


def _means(samples: Sequence[Sample]) -> Iterable[tuple[float, float]]:
    """Time and mean return of the episodes of the last few seconds, wherever some ended."""
    for index, item in enumerate(samples):
        recent = [other for other in samples[: index + 1] if other.seconds > item.seconds - WINDOW_SECONDS]
        episodes = sum(other.episodes for other in recent)
        if episodes:
            yield item.seconds, sum(other.returns for other in recent) / episodes


def _corners(samples: Sequence[Sample]) -> Iterable[Sample]:
    """Each sample, and before a change of weight the old weight at the same time: steps, not slopes."""
    before = samples[0]
    for item in samples:
        if item.weight != before.weight:
            yield Sample(item.seconds, 0, 0, before.weight, before.phase, before.training)
        yield item
        before = item


def _bands(samples: Sequence[Sample], x: Callable[[float], float]) -> Iterable[str]:
    """The times of training, shaded."""
    began: float | None = None
    for item in [*samples, None]:
        if item is not None and item.training and began is None:
            began = item.seconds
        elif began is not None and (item is None or not item.training):
            until = item.seconds if item is not None else samples[-1].seconds
            size = f'width="{x(until) - x(began)}" height="{MIDDLE - TOP}"'
            yield f'<rect class="training" x="{x(began)}" y="{TOP}" {size}/>'
            yield f'<text x="{x(began) + 4}" y="{TOP + 14}">training</text>'
            began = None


def _marks(samples: Sequence[Sample], x: Callable[[float], float]) -> Iterable[str]:
    """A line where a canary was rolled back."""
    for before, item in pairwise(samples):
        if item.phase == "RolledBack" != before.phase:
            yield f'<line class="back" x1="{x(item.seconds)}" x2="{x(item.seconds)}" y1="{TOP}" y2="{BOTTOM}"/>'
            yield f'<text x="{x(item.seconds) - 74}" y="{MIDDLE + 18}">rolled back</text>'
