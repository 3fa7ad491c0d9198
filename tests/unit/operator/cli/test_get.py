"""The table of agents, runs and rollouts, and the long answer of why."""

from datetime import UTC, datetime
from typing import Any

from learnloop_operator.cli.looking import why
from learnloop_operator.cli.text import HEAD, loop_line, loop_row, table

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
EVIDENCE = {
    "name": "success",
    "claim": "success not worse by 0.05",
    "verdict": "undecided",
    "chanceWorse": 0.2,
    "chanceFine": 0.61,
    "neededEpisodes": 75,
    "estimatedAt": "2026-01-31T12:02:00Z",
}
ROLLOUT: dict[str, Any] = {
    "phase": "Progressing",
    "stepText": "2/4",
    "weight": 25,
    "verdict": "holding at 25 %",
    "stable": {"revision": "bbbbbbbb", "uri": "https://m/0", "meanReturn": 300.0},
    "canary": {"revision": "aaaaaaaa", "uri": "https://m/1", "meanReturn": 480.0, "episodes": 25},
    "evidence": [EVIDENCE],
}


def cells(plural: str, status: dict[str, Any]) -> tuple[str, ...]:
    return loop_row(plural, {"metadata": {"name": "x"}, "status": status}, NOW)


def test_a_rollout_shows_step_weight_share_of_the_evidence_and_time_left() -> None:
    assert cells("modeldeployments", ROLLOUT) == (
        "mdep/x", "Progressing", "2/4", "25%", "25%", "2m00s", "480.0 vs 300.0", "holding at 25 %",
    )  # fmt: skip


def test_a_run_and_an_agent_have_their_own_figures() -> None:
    job = {
        "phase": "Running",
        "step": 500,
        "totalSteps": 1000,
        "progress": "50%",
        "eta": "1m20s",
        "return": "480 [1, 2]",
    }
    assert cells("trainingjobs", job)[:7] == ("tjob/x", "Running", "500/1000", "", "50%", "1m20s", "480 [1, 2]")
    agent = {"phase": "Collecting", "weight": "25%", "recentReturn": 20.0, "conditions": []}
    assert cells("learningagents", agent)[:7] == ("la/x", "Collecting", "", "25%", "", "", "20.0")
    assert cells("learningagents", {})[-1] == "the operator has not looked at it yet"


def test_columns_are_aligned_and_cut_at_the_width_of_the_terminal() -> None:
    text = table(HEAD, [cells("modeldeployments", ROLLOUT), cells("trainingjobs", {"phase": "Running"})], width=60)
    lines = text.splitlines()
    assert all(len(item) <= 60 for item in lines)
    assert lines[0].split()[:3] == list(HEAD[:3])
    assert len({item.index(word) for item, word in zip(lines, ("PHASE", "Progressing", "Running"), strict=True)}) == 1


def test_a_line_for_a_pipe_names_its_cells_and_leaves_the_empty_ones_out() -> None:
    assert loop_line(cells("trainingjobs", {"phase": "Running", "step": 5})) == (
        "tjob/x phase=Running step=5 the operator has not looked at it yet"
    )


def answered(status: dict[str, Any]) -> str:
    """The text of `why`."""

    class Cluster:
        def get(self, plural: str, name: str) -> dict[str, Any]:
            return {"metadata": {"name": name, "uid": "u"}, "status": status}

        def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
            return []

    return why(Cluster(), "x")  # type: ignore[arg-type]


def test_why_of_a_promoted_model_has_its_figures_and_when_it_was_promoted() -> None:
    stable = {"revision": "aaaaaaaa", "uri": "https://m/1", "episodes": 422, "meanReturn": -84.2, "successRate": 0.981}
    promoted = "2026-01-31T11:30:00Z"
    said = answered({"phase": "Healthy", "verdict": "serves", "stable": stable, "promotedAt": promoted})
    assert "422 episodes, mean return -84.2, success rate 98.1%" in said
    assert "aaaaaaaa at 2026-01-31T11:30:00Z" in said
    assert "evidence" not in said


def test_why_calls_a_ratio_that_is_not_breached_no_breach() -> None:
    ratio = {"name": "return", "claim": "at least 0.9 × stable", "verdict": "undecided", "compared": [20.0]}
    assert "return: at least 0.9 × stable: no breach" in answered({**ROLLOUT, "evidence": [ratio]})


def test_why_tells_the_evidence_the_orders_and_who_decided_what() -> None:
    decided = {
        "verb": "pause",
        "revision": "aaaaaaaa",
        "by": "alice",
        "at": "2026-01-31T11:59:00Z",
        "outcome": "obeyed",
        "message": "on hold at 25 %",
        "value": "aaaaaaaa by alice",
    }
    more = {
        "hand": {"verb": "pause", "by": "alice (as claimed)", "at": "2026-01-31T11:59:00Z"},
        "lastStable": {"uri": "https://m/0"},
        "decisions": [decided, {**decided, "verb": "abort", "verified": True, "step": 2}],
    }

    said = answered({**ROLLOUT, **more})
    for part in (
        "pause by alice (as claimed) since 2026-01-31T11:59:00Z",
        "would go back to https://m/0",
        "P(worse) 0.2000; P(not worse) 0.6100; 75 more canary episodes, about 2026-01-31T12:02:00Z",
        "pause aaaaaaaa by alice (as claimed): obeyed: on hold at 25 %",
        "abort aaaaaaaa at step 2 by alice: obeyed",
    ):
        assert part in said
