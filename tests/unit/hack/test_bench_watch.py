"""The bench that counts what is lost counts right."""

from pathlib import Path

import pytest

from bench.watch import notifications
from bench.watch.__main__ import main
from bench.watch.notifications import Receivers, _counted


def test_lost_doubled_and_repeated_are_three_things(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    lines = ["webhook a run-0", "webhook a run-0", "webhook b run-1", "webhook c run-1", "mail m run-0"]
    taken.write_text("\n".join(lines) + "\n")
    figures = _counted(Receivers(taken, 0, 0), 2)
    assert figures == {"told": 4, "lost": 1, "doubled": 1, "repeated": 1}


def test_a_part_that_is_none_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "anomalies,traffic"])
    assert "'traffic' is no part: name some of anomalies, queueing, notifications, overhead" in capsys.readouterr().err


def test_a_missed_goal_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(notifications, "measured", lambda *_: {"lost": 1, "missed": ["lost"]})
    assert main(["--only", "notifications"]) == 1
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert '"missed": ["notifications: lost"], "met": false}' in last
