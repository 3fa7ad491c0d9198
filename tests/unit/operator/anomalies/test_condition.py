"""The condition Anomalous and its events."""

from learnloop_operator.core.anomalies import Finding, ReturnAnomalies, judged, news

QUIET = ReturnAnomalies(200)
DROPPED = ReturnAnomalies(200, (Finding("SuddenDrop", "12 after 40"),))


def status(*conditions: dict) -> dict:
    return {"conditions": list(conditions)}


def test_an_anomaly_names_its_arm() -> None:
    [anomaly] = judged({"revision a": QUIET, "revision b": DROPPED}, (), 3)
    assert (anomaly["type"], anomaly["status"], anomaly["reason"]) == ("Anomalous", "True", "SuddenDrop")
    assert anomaly["message"] == "revision b: 12 after 40"


def test_figures_that_move_write_no_status() -> None:
    [first] = judged({"": DROPPED}, (), 1)
    [second] = judged({"": ReturnAnomalies(200, (Finding("SuddenDrop", "11 after 40"),))}, [first], 1)
    assert second == first


def test_an_event_comes_when_it_begins_and_when_it_is_over() -> None:
    [calm], [bad] = judged({"": QUIET}, (), 1), judged({"": DROPPED}, (), 1)
    assert [notice.reason for notice in news(status(calm), status(bad))] == ["SuddenDrop"]
    assert news(status(bad), status(bad)) == ()
    assert [notice.reason for notice in news(status(bad), status(calm))] == ["AnomalyOver"]
    assert news({}, {}) == ()


def test_nothing_that_was_looked_at_is_no_condition_and_too_little_an_unknown_one() -> None:
    assert judged({}, (), 1) == []
    [anomaly] = judged({"": ReturnAnomalies(12)}, (), 1)
    assert (anomaly["status"], anomaly["reason"]) == ("Unknown", "TooFewEpisodes")
