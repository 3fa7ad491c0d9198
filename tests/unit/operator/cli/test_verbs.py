"""The verbs against objects as the API server gives them: what they say, what they write, what they refuse."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from learnloop_api.kinds.base import PodOptions
from learnloop_api.names import ANNOTATION_TRAIN, verb_annotation
from learnloop_operator.cli import main
from learnloop_operator.cli.explaining_verbs import trace, why
from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.steering_verbs import (
    abort,
    approve,
    override,
    pause,
    promote,
    reject,
    restart,
    resume,
    retry,
    skip,
    train,
    undo,
)
from learnloop_operator.rollout.state.snapshot import revision_of

SHA = "ab" * 32
PINS = [{"revision": revision, "message": "too bad"} for revision in ("aaaaaaaa", "bbbbbbbb")]
ARM = {"revision": "aaaaaaaa", "uri": "https://m/1", "sha256": SHA, "episodes": 60, "meanReturn": 487.25}
OLD = {"revision": "bbbbbbbb", "uri": "uniform://discrete/2?observations=4"}


class Objects:
    """A namespace's custom resources, and the annotations set on them."""

    namespace = "ns"

    def __init__(self, **kinds: dict) -> None:
        self.kinds, self.annotations = kinds, {}

    def find(self, plural: str, name: str) -> dict | None:
        body = self.kinds.get(plural, {}).get(name)
        return {"metadata": {"name": name, "uid": "u"}, **body} if body is not None else None

    def get(self, plural: str, name: str) -> dict:
        body = self.find(plural, name)
        if body is None:
            raise CommandError(f"no {name}")
        return body

    def every(self, plural: str) -> list[dict]:
        return [self.get(plural, name) for name in self.kinds.get(plural, {})]

    def annotate(self, plural: str, name: str, values: Mapping[str, str | None]) -> None:
        self.annotations = dict(values)

    def user(self) -> str:
        return "alice"

    def events(self, body: dict) -> list[dict]:
        return [{"at": datetime(2026, 1, 1, tzinfo=UTC), "type": "Normal", "reason": "Promoted", "note": "it did well"}]


def rollout(**fields) -> Objects:
    return Objects(modeldeployments={"x": {"status": fields}})


def printed(cluster: Objects, verb: str) -> str:
    """The annotation without its time; nothing else was written."""
    assert set(cluster.annotations) == {verb_annotation(verb)}
    what, _, rest = cluster.annotations[verb_annotation(verb)].partition(" at ")
    assert rest.partition(" by ")[0].endswith("Z")
    return f"{what} by {rest.partition(' by ')[2]}"


STEP = {"canary": ARM, "stable": OLD, "step": 1, "stepText": "2/4", "weight": 25}
AT_GATES = {"gates": {"revision": "aaaaaaaa", "phase": "AwaitingApproval"}}
HELD = {"standingOrder": {"verb": "pause", "by": "bob", "at": "2026-01-31T12:00:00Z"}}


@pytest.mark.parametrize(
    ("verb", "fields", "written"),
    [
        (approve, {"phase": "Paused", **STEP}, "aaaaaaaa/2 by alice"),
        (approve, {"phase": "Paused", **STEP, **AT_GATES}, "aaaaaaaa by alice"),
        (reject, {"phase": "Paused", **STEP}, "aaaaaaaa/2 by alice"),
        (pause, STEP, "aaaaaaaa by alice"),
        (resume, {**STEP, **HELD}, "aaaaaaaa by alice"),
        (skip, STEP, "aaaaaaaa/2 by alice"),
        (promote, STEP, "aaaaaaaa by alice"),
        (restart, STEP, "aaaaaaaa by alice"),
        (abort, STEP, "aaaaaaaa by alice"),
        (abort, {"stable": ARM, "previous": OLD}, "aaaaaaaa by alice"),
        (undo, {"stable": ARM, "previous": OLD}, "aaaaaaaa by alice"),
        (undo, {"stable": ARM, "lastStable": OLD}, "aaaaaaaa by alice"),
        (retry, {"blockedRevision": {"revision": "aaaaaaaa", "message": "too bad"}}, "aaaaaaaa by alice"),
        (retry, {"blockedRevision": PINS[1], "blockedRevisions": PINS}, "bbbbbbbb by alice"),
    ],
)
def test_a_verb_names_what_is_shown_and_who_says_it(verb, fields: dict, written: str) -> None:
    cluster = rollout(**fields)
    assert verb(cluster, "x")
    assert printed(cluster, verb.__name__) == written


@pytest.mark.parametrize(
    ("verb", "fields", "refusal"),
    [
        (approve, {"phase": "Healthy", "verdict": "fine"}, r"waits for no approval \(Healthy\): fine"),
        (approve, {"phase": "Paused", **STEP, **HELD}, "is on hold: `kubectl learnloop resume x`"),
        (reject, {"phase": "Progressing", **STEP}, "waits for no approval; `kubectl learnloop abort x`"),
        (pause, {"phase": "Healthy"}, "has no canary"),
        (resume, STEP, "is not on hold"),
        (skip, {"canary": ARM}, "is at no step yet"),
        (promote, {**STEP, **HELD}, "is on hold"),
        (restart, {}, r"has no canary \(new\): the operator has not looked"),
        (abort, {"stable": ARM}, "neither a canary nor a warm old arm"),
        (undo, STEP, "has a canary: `kubectl learnloop abort x`"),
        (undo, {"stable": ARM}, "no earlier model on record: set spec.model"),
        (retry, {"phase": "Healthy"}, "nothing to retry"),
    ],
)
def test_a_verb_refuses_where_it_would_do_nothing(verb, fields: dict, refusal: str) -> None:
    cluster = rollout(**fields)
    with pytest.raises(CommandError, match=refusal):
        verb(cluster, "x")
    assert not cluster.annotations


def test_a_retry_unblocks_the_revision_that_is_named_or_all() -> None:
    blocked = {"blockedRevision": PINS[1], "blockedRevisions": PINS}
    cluster = rollout(**blocked)
    retry(cluster, "x", revision="aaaaaaaa")
    assert printed(cluster, "retry") == "aaaaaaaa by alice"
    assert retry(cluster, "x", every=True) == "aaaaaaaa, bbbbbbbb may try again"
    assert printed(cluster, "retry") == "all by alice"
    with pytest.raises(CommandError, match="has not blocked --revision 'cccccccc': it has aaaaaaaa, bbbbbbbb"):
        retry(cluster, "x", revision="cccccccc")


def test_a_second_pause_or_promotion_changes_nothing() -> None:
    cluster = rollout(**STEP, **HELD)
    assert "on hold since 2026-01-31T12:00:00Z already, by bob" in pause(cluster, "x")
    assert promote(rollout(stable=ARM), "x", revision="aaaaaaaa") == "aaaaaaaa is stable already"
    assert not cluster.annotations


def test_a_suspended_rollout_obeys_abort_and_nothing_that_leads_up() -> None:
    cluster = Objects(modeldeployments={"x": {"spec": {"suspend": True}, "status": STEP}})
    for verb in (approve, promote, skip, restart, retry, undo, pause, resume):
        with pytest.raises(CommandError, match=r"spec.suspend of ModelDeployment 'x' is true: set it to false first"):
            verb(cluster, "x")
    assert not cluster.annotations
    abort(cluster, "x")
    assert verb_annotation("abort") in cluster.annotations


def test_only_an_arm_on_trial_is_promoted() -> None:
    with pytest.raises(CommandError, match="--revision 'cccccccc' is not the one to promote in 'x': that is aaaaaaaa"):
        promote(rollout(**STEP), "x", revision="cccccccc")


@pytest.mark.parametrize(("verb", "more"), [(skip, {}), (promote, {})])
def test_a_model_that_waits_for_the_end_of_a_guard_is_named_by_skip_and_promote(verb, more):
    model = {"uri": "https://m/2", "sha256": SHA}
    new = revision_of(model["uri"], SHA, PodOptions())
    for spec in ({"model": model}, {"model": {"learningAgentRef": {"name": "x"}}}):
        guarding = {"spec": spec, "status": {"phase": "Guarding", "stable": ARM, "previous": OLD}}
        cluster = Objects(
            modeldeployments={"x": guarding}, learningagents={"x": {"status": {"model": {**model, "source": "pinned"}}}}
        )
        assert verb(cluster, "x", **more).startswith(f"asked to begin {new} now")
        assert printed(cluster, verb.__name__) == f"{new} by alice"
    with pytest.raises(CommandError, match="has no canary"):
        verb(rollout(phase="Healthy", stable=ARM), "x", **more)


EXPERIMENT = {
    "experiment": {
        "phase": "Won",
        "winner": "b",
        "arms": [
            {"name": "stable", "revision": "aaaaaaaa", "standing": "beaten"},
            {"name": "a", "revision": "bbbbbbbb", "standing": "beaten"},
            {"name": "b", "revision": "cccccccc", "standing": "playing"},
        ],
    }
}


def test_the_winner_of_an_experiment_is_promoted_and_an_arm_is_taken_out_by_name() -> None:
    assert "asked to promote cccccccc" in promote(rollout(**EXPERIMENT), "x")
    assert "taking b out of the experiment" in abort(rollout(**EXPERIMENT), "x", arm="b")
    with pytest.raises(CommandError, match="--arm 'a' plays in no experiment of ModelDeployment 'x': b does"):
        abort(rollout(**EXPERIMENT), "x", arm="a")


def test_why_tells_of_the_arms_of_an_experiment_and_of_the_copies_in_shadow() -> None:
    arm = {"name": "b", "revision": "cccccccc", "weight": 20, "standing": "playing"}
    shown = {**arm, "mean": 0.81, "low": 0.7, "high": 0.9, "episodes": 120, "chanceBetter": 0.97}
    fields = {"experiment": {"id": "dddddddd", "phase": "Running", "message": "going on", "arms": [shown]}}
    printed = why(rollout(phase="Progressing", shadow={"message": "212 requests compared"}, **fields), "x")
    assert "experiment dddddddd: Running: going on" in printed
    assert "  b cccccccc 20 %: 0.81 [0.7, 0.9] over 120 episodes; P(better than stable) 0.9700; playing" in printed
    assert "212 requests compared" in printed


def test_train_asks_once_and_refuses_what_cannot_train() -> None:
    ready = {"spec": {"training": {"template": {}}}, "status": {"trainings": 2}}
    cluster = Objects(learningagents={"x": ready})
    assert train(cluster, "x") == "requested x-3"
    assert set(cluster.annotations) == {ANNOTATION_TRAIN}
    for spec, printed in (({}, "spec.training"), ({"training": {"a": 1}, "suspend": True}, "spec.suspend")):
        with pytest.raises(CommandError, match=printed):
            train(Objects(learningagents={"x": {"spec": spec}}), "x")


def test_trace_walks_from_the_model_to_the_experience() -> None:
    job = {
        "spec": {"algorithm": "ppo", "totalSteps": 1000},
        "status": {
            "phase": "Validated",
            "artifact": {"uri": "https://m/1", "sha256": SHA},
            "evaluation": {"mean": 487.2, "ciLow": 481.0, "ciHigh": 492.1, "episodes": 100},
            "gates": [{"name": "minReturn", "passed": True, "message": "487.2 ≥ 400"}],
            "startedAt": "t0",
            "finishedAt": "t1",
            "lineage": {"learningAgent": "x", "rewardPolicy": "p", "rewardPolicyRevision": "r1", "trajectories": 200},
        },
    }
    cluster = Objects(
        modeldeployments={"x": {"status": {"stable": ARM, "canary": None}}},
        trainingjobs={"x-1": job},
        rewardpolicies={"p": {"status": {"revision": "r2"}}},
    )
    printed = trace(cluster, "x", arm="stable")
    for part in ("x-1: ppo, 1000 steps", "487.2 [481.0, 492.1] over 100", "p revision r1; now r2", "200 trajectories"):
        assert part in printed
    assert "nothing to trace" in trace(cluster, "x", arm="canary")


def test_trace_says_where_the_trail_ends() -> None:
    assert "nothing was learned yet" in trace(rollout(stable=OLD), "x", arm="stable")
    assert "pinned from outside" in trace(rollout(stable=ARM), "x", arm="stable")


def test_why_tells_verdict_arms_and_log() -> None:
    printed = why(rollout(phase="Guarding", verdict="guarding it", stable=ARM, previous=OLD), "x")
    for part in ("guarding it", "aaaaaaaa https://m/1, 0/0 ready", "00:00:00  Promoted: it did well"):
        assert part in printed
    assert "has not looked at it yet" in why(rollout(), "x")


def test_without_kubectl_the_command_fails_with_one_sentence(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main.main(["why", "x"]) == 1
    assert capsys.readouterr().err.startswith("error: kubectl is not on PATH")


def test_an_override_is_signed_with_its_end_and_reason() -> None:
    cluster = rollout(phase="Healthy")
    order = {"agent": "cart", "span": "30m", "reason": "wrong prices"}
    assert "cart gets no answer for 30m" in override(cluster, "x", **order | {"stop": True})
    what, by = printed(cluster, "override").split(" by ")
    fields = parse_qs(what)
    assert (fields["instead"], fields["agent"], fields["reason"], by) == (["stop"], ["cart"], ["wrong prices"], "alice")
    assert fields["for"] == ["1800"], "no clock of this machine's is in it"
    override(cluster, "x", **order | {"answer": "call by phone at noon"})
    assert printed(cluster, "override").count(" by ") == 1, "nothing in it is taken for a name"
    override(cluster, "x", **order | {"end": True})
    assert printed(cluster, "override") == "instead=none&agent=cart by alice"
    for wrong in ({"span": "8d"}, {"span": "soon"}, {"reason": " "}, {"reason": "x" * 1000}):
        with pytest.raises(CommandError, match=r"--for|--reason"):
            override(cluster, "x", **order | {"stop": True} | wrong)
