"""The picture of a run shows what the run's samples say."""

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from demo.picture import draw
from demo.recorder import Sample


def run() -> list[Sample]:
    """A minute with chance, a canary that is promoted, and another one that is rolled back."""
    samples = []
    for second in range(1, 121):
        weight = 10 if 60 <= second < 70 else 50 if 70 <= second < 80 else 10 if 100 <= second < 110 else 0
        mean = 20.0 if second < 60 else 500.0
        phase = "RolledBack" if second >= 110 else "Progressing" if weight else "Healthy"
        samples.append(Sample(float(second), 4, 4 * mean, weight, phase, 30 <= second < 55))
    return samples


def test_the_picture_is_well_formed_and_marks_training_and_the_roll_back(tmp_path: Path) -> None:
    draw(run(), tmp_path / "run.svg")
    text = (tmp_path / "run.svg").read_text()
    ElementTree.fromstring(text)
    assert text.count('class="training"') == 1
    assert text.count('class="back"') == 1


def test_the_line_of_returns_rises_with_the_returns(tmp_path: Path) -> None:
    draw(run(), tmp_path / "run.svg")
    root = ElementTree.fromstring((tmp_path / "run.svg").read_text())
    line = next(item for item in root.iter() if item.get("class") == "return")
    heights = [float(point.split(",")[1]) for point in str(line.get("points")).split()]
    assert heights[-1] < heights[0] - 100, "higher returns are higher in the picture: smaller y"
    assert all(math.isfinite(height) for height in heights)


def test_a_run_without_episodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no episode ended"):
        draw([Sample(1.0, 0, 0, 0, "", False)], tmp_path / "run.svg")
