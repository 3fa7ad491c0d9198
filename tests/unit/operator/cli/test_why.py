"""`kubectl learnloop why`: the arms, the evidence, the orders and who decided."""

from learnloop_operator.cli.explaining_verbs import why

EVIDENCE = {
    "name": "success",
    "claim": "success not worse by 0.05",
    "verdict": "undecided",
    "chanceWorse": 0.2,
    "chanceFine": 0.61,
    "neededEpisodes": 75,
    "estimatedAt": "2026-01-31T12:02:00Z",
}
ROLLOUT = {
    "phase": "Progressing",
    "stepText": "2/4",
    "weight": 25,
    "verdict": "holding at 25 %",
    "stable": {"revision": "bbbbbbbb", "uri": "https://m/0", "meanReturn": 300.0},
    "canary": {"revision": "aaaaaaaa", "uri": "https://m/1", "meanReturn": 480.0, "episodes": 25},
    "evidence": [EVIDENCE],
}


def answered(status: dict) -> str:
    """The text of `why`."""

    class Cluster:
        def get(self, plural: str, name: str) -> dict:
            return {"metadata": {"name": name, "uid": "u"}, "status": status}

        def events(self, body: dict) -> list[dict]:
            return []

    return why(Cluster(), "x")


def test_why_of_a_promoted_model_has_its_figures_and_when_it_was_promoted() -> None:
    stable = {"revision": "aaaaaaaa", "uri": "https://m/1", "episodes": 422, "meanReturn": -84.2, "successRate": 0.981}
    promoted = "2026-01-31T11:30:00Z"
    output = answered({"phase": "Healthy", "verdict": "serves", "stable": stable, "promotedAt": promoted})
    assert "422 episodes, mean return -84.2, success rate 98.1%" in output
    assert "aaaaaaaa at 2026-01-31T11:30:00Z" in output
    assert "evidence" not in output


def test_why_calls_a_ratio_that_is_not_breached_no_breach() -> None:
    ratio = {"name": "return", "claim": "at least 0.9 × stable", "verdict": "undecided", "chanceWorse": 0.2}
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
        "standingOrder": {"verb": "pause", "by": "alice (as claimed)", "at": "2026-01-31T11:59:00Z"},
        "lastStable": {"uri": "https://m/0"},
        "decisions": [decided, {**decided, "verb": "abort", "verified": True, "step": 2}],
    }

    output = answered({**ROLLOUT, **more})
    for part in (
        "pause by alice (as claimed) since 2026-01-31T11:59:00Z",
        "would go back to https://m/0",
        "P(worse) 0.2000; P(not worse) 0.6100; 75 more canary episodes, about 2026-01-31T12:02:00Z",
        "pause aaaaaaaa by alice (as claimed): obeyed: on hold at 25 %",
        "abort aaaaaaaa at step 2 by alice: obeyed",
    ):
        assert part in output
