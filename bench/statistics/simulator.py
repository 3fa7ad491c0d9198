"""A model-based simulator: rollouts by the hundred thousand through `transitions.move`, which takes every decision.

What `decide` adds to it (rendering manifests, reading and writing a status) takes half a millisecond each time, too
long for a million a minute. It is left out here and covered, with the operator dying between any two writes, by
`testing.state_walk` and the unit tests; this walk covers long histories: minutes to hours of a
rollout, faults that come and go, models that change in mid-canary, annotations. Every step is checked, and each table.
"""

import math
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from bench.statistics.walked import Walked
from learnloop_api import names
from learnloop_api.kinds.base import Condition
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.children.routing import table_for
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.judging.judgement import Judgement
from learnloop_operator.rollout.reasons import DATA_AVAILABLE
from learnloop_operator.rollout.state.rollout_state import ArmState, NextState, State
from learnloop_operator.rollout.state.snapshot import Defaults, Desired, LiveArm, Model, Snapshot
from learnloop_operator.rollout.status import data_condition
from learnloop_operator.rollout.steps import canary_steps
from learnloop_operator.rollout.transitions import move
from testing.simulation.opened_episodes import ended_at_once
from testing.state_walk.table_shares import shares, unfair

ALPHA, MIN_EPISODES, MOST_ERRORS, LEAST_RATIO = 0.01, 20, 0.1, 0.9
STEPS = (10, 25, 50, 100)
CHAOS_LOOKS, MOST_LOOKS = 60, 4_000
NEAR = 0.02
STABLE = Model("00000000", "https://models.example/0.onnx", "00" * 32)
MODELS = tuple(
    Model(f"{number:08x}", f"https://models.example/{number}.onnx", f"{number:064x}") for number in range(1, 4)
)
FAULTS = ("none", "away", "no canary", "no stable", "nan", "quiet", "reset", "stale", "skewed", "pods gone")
MUTE = frozenset(("away", "no canary", "no stable", "nan", "stale", "skewed"))
NOTHING = (0, 0)
EARLY = datetime(2026, 1, 1, tzinfo=UTC)
UNTOLD = Condition(type=DATA_AVAILABLE, status="Unknown", last_transition_time=stamp(EARLY), reason="None", message="")


@dataclass(slots=True)
class World:
    """One ModelDeployment and its users, as far as a decision can see them."""

    source: random.Random
    spec: ModelDeploymentSpec
    status: ModelDeploymentStatus
    now: datetime = EARLY
    desired: Model = STABLE
    state: State = field(default_factory=State)
    counters: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Finished and successful episodes of this rollout, by revision."""
    notes: dict[str, str] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)
    data: Condition = UNTOLD
    """The condition DataAvailable: all of the old status that a decision reads."""

    def look(self, fault: str) -> Snapshot:
        """The snapshot of this moment."""
        arms = self.state.arms()
        running = {arm.revision: RUNNING for arm in arms}
        if fault == "pods gone" and self.state.canary:
            running[self.state.canary.revision] = LiveArm(0, 1)
        if self.state.stable is None:
            running[STABLE.revision] = LiveArm(1, 1)
        return Snapshot(
            now=self.now,
            object={"metadata": {"name": "md", "namespace": "ns", "annotations": self.notes}},
            spec=self.spec,
            before=self.status,
            desired=Desired(self.desired),
            arms=running,
            evidence=self._evidence(fault, arms),
            defaults=DEFAULTS,
        )

    def _evidence(self, fault: str, players: tuple[ArmState, ...]) -> Evidence:
        if fault == "away":
            return Evidence(unavailable="away")
        if fault == "reset":
            self.counters.clear()
        scraped = self.now - timedelta(seconds=600) if fault == "stale" else self.now
        arms: dict[str, ArmEvidence] = {}
        for arm in players:
            if fault == ("no canary" if arm is self.state.canary else "no stable"):
                continue
            revision = arm.revision
            n, good = self.counters.get(revision, NOTHING)
            rate = math.nan if fault == "nan" else good / n if n else None
            errors = None if rate is None else (1.0 - rate) / 4.0
            arms[revision] = ArmEvidence(n, None, rate, errors, scraped_at=scraped, lately=n, openings=ended_at_once(n))
        clock = self.now + timedelta(hours=1) if fault == "skewed" else None
        return Evidence(arms, clock=clock)

    def play(self, seconds: int, fault: str) -> None:
        """Time passes, and users play by the weight."""
        self.now += timedelta(seconds=seconds)
        if fault == "quiet" or self.state.stable is None:
            return
        weight = self.state.weight
        for arm, share in ((self.state.canary, weight), (self.state.stable, 100 - weight)):
            n = seconds * 20 * share // 100 if arm else 0
            if arm and n:
                revision = arm.revision
                mean, spread = self.quality[revision], math.sqrt(n) / 2.0
                good = min(n, max(0, round(n * mean + self.source.gauss(0.0, spread * 0.8))))
                before = self.counters.get(revision, NOTHING)
                self.counters[revision] = before[0] + n, before[1] + good

    def take(self, after: NextState) -> None:
        """The operator has persisted its decision; a new rollout begins with counters at 0."""
        if after.state.rollout_started_at != self.state.rollout_started_at:
            self.counters.clear()
        self.state = after.state
        condition = data_condition(after, 1)
        if (condition["status"], condition["reason"]) != (self.data.status, self.data.reason):
            since = self.data.last_transition_time if condition["status"] == self.data.status else stamp(self.now)
            new = {"status": condition["status"], "reason": condition["reason"], "last_transition_time": since}
            self.data = self.data.model_copy(update=new)
            self.status = self.status.model_copy(update={"conditions": [self.data]})


DEFAULTS, RUNNING = Defaults("image", "http://data"), LiveArm(1, 1)


def walk(seed: int, seconds: float, sequential: bool) -> Walked:
    """Rollouts one after the other until `seconds` of wall clock are over, judged by a test or by a threshold."""
    walked, source, spec = Walked(), random.Random(seed), _spec(sequential)
    began, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        _rollout(walked, source, spec)
    walked.cpu_seconds = time.process_time() - cpu
    return walked


def _rollout(record: Walked, source: random.Random, spec: ModelDeploymentSpec) -> None:
    """One model is asked for, anything happens, and then nothing more does: the rollout must end."""
    stable = source.uniform(0.75, 0.98)
    world = World(
        source, spec, ModelDeploymentStatus(), state=State(stable=ArmState(STABLE, stamp(EARLY), was_ready=True))
    )
    world.quality = {STABLE.revision: stable}
    for model in MODELS:
        world.quality[model.revision] = max(0.05, min(0.99, stable + source.choice((-0.4, -0.15, 0.0, 0.02))))
    world.desired = source.choice(MODELS)
    record.rollouts += 1
    for fault in _faults(source):
        _meddle(world, source, fault)
        snapshot = world.look(fault)
        before = world.state
        after = move(snapshot, before.with_readiness(snapshot.arms, snapshot.now))
        record.steps += 1
        record.wrong += _broken(world, fault, before, after)
        if shares(after.state) != shares(before):
            record.tables += 1
            record.wrong += unfair(table_for(snapshot, after.state), STEPS[after.state.step or 0])
        world.take(after)
        if fault == "calm" and not (world.state.canary or world.state.previous):
            record.ends[after.phase] += 1
            return
        world.play(0 if after.again_after == 0.0 else source.choice((1, 5, 20)), fault)
    if _near_its_bar(world):
        record.ends["undecided"] += 1
        return
    record.ends["never"] += 1
    record.wrong.append(f"no end after {MOST_LOOKS} looks: {world.state.step} at {world.state.weight} %")


def _near_its_bar(world: World) -> bool:
    """Whether thousands of looks cannot tell which side of the bar the canary is on: such a step holds, by design."""
    if world.state.canary is None or world.spec.analysis.metrics[0].test == "sequential":
        return False
    good, fine = _compared(world.state)
    return abs(good - LEAST_RATIO * fine) < NEAR


def _compared(state: State) -> tuple[float, float]:
    """Success rates of the canary and of stable at the same time, as the status has them; -1 and 0 without any."""
    memory = state.comparisons[0].memory if state.comparisons else None
    n = memory.judged.canary.n if memory else 0.0
    return (memory.judged.canary.total / n, memory.stable_total / n) if memory and n else (-1.0, 0.0)


def _faults(source: random.Random) -> Iterator[str]:
    """Faults that last some looks each; then calm."""
    left = source.randrange(CHAOS_LOOKS)
    while left > 0:
        fault, lasts = source.choice(FAULTS) if source.random() < 0.5 else "none", source.randrange(1, 9)
        yield from [fault] * lasts
        left -= lasts
    yield from ["calm"] * MOST_LOOKS


def _meddle(world: World, source: random.Random, fault: str) -> None:
    """The acts of people on a rollout while it runs."""
    if fault == "calm" or source.random() > 0.03:
        return
    arm = world.state.canary
    deed = source.randrange(4)
    if deed == 0:
        world.desired = source.choice((STABLE, *MODELS))
    elif deed == 1 and arm:
        world.notes = {**world.notes, names.ANNOTATION_ABORT: arm.revision}
    elif deed == 2:
        world.notes = {names.ANNOTATION_RETRY: str(source.random())}
    else:
        world.quality[world.desired.revision] = source.uniform(0.1, 0.99)


def _broken(world: World, fault: str, old: State, after: NextState) -> list[str]:
    """The promises that this step breaks. It knows the world and the state, and nothing of the code between."""
    new, wrong = after.state, []
    if old.stable is not None and new.stable is None:
        wrong.append("stable is gone")
    if new.canary and new.weight > (0 if new.step is None else STEPS[new.step]):
        wrong.append(f"weight {new.weight} % above that of step {(new.step or 0) + 1}")
    if new.canary and new.blocked and new.blocked.revision == new.canary.revision:
        wrong.append("a blocked revision is a canary")
    same = old.canary and new.canary and old.canary.revision == new.canary.revision
    promoted = bool(old.canary and new.stable and new.stable.revision == old.canary.revision)
    if promoted or (same and (new.step or 0) > (old.step if old.step is not None else -1) and old.step is not None):
        wrong += _missing(world, fault, old, after)
    fresh = new.blocked if new.blocked != old.blocked and old.canary else None
    if fresh and fault in ("away", "no canary", "nan") and fresh.reason == "CheckFailed":
        wrong.append(f"rolled back by a check without evidence ({fault})")
    return wrong


def _missing(world: World, fault: str, old: State, after: NextState) -> list[str]:
    """The flaws of a passed step."""
    assert old.canary is not None
    assert old.stable is not None
    n, good = world.counters.get(old.canary.revision, (0, 0))
    canary_ratio, stable_ratio = _compared(after.state if after.state.comparisons else old)
    passed = n - (old.step_base if old.step_base is not None else n)
    trials = after.state.comparisons or old.comparisons
    tested = any(item.test == "sequential" for item in world.spec.analysis.metrics)
    proven = bool(trials) and trials[0].memory.fine >= math.log(1.0 / ALPHA) - 1e-9
    lacks = (
        (fault in (MUTE - {"no stable"} if old.weight == 100 else MUTE), f"without evidence at this look ({fault})"),
        (passed < MIN_EPISODES, f"on {passed} of {MIN_EPISODES} episodes"),
        (bool(n) and (1.0 - good / n) / 4.0 > MOST_ERRORS, "with too many errors"),
        (tested and not proven, "without proof"),
        (not tested and canary_ratio < LEAST_RATIO * stable_ratio - 1e-9, "below the bar"),
    )
    return [f"step {old.step} was passed {text}" for broken, text in lacks if broken]


def _spec(sequential: bool) -> ModelDeploymentSpec:
    metric: dict[str, Any] = {"name": "success", "type": "success"}
    metric |= {"test": "sequential", "maxDrop": 0.05} if sequential else {"minRatio": LEAST_RATIO}
    body = {
        "model": {"uri": STABLE.uri, "sha256": STABLE.sha256},
        "rollout": {
            "steps": [{"weight": weight, "minEpisodes": MIN_EPISODES} for weight in STEPS],
            "keepForSeconds": 60,
            "progressDeadlineSeconds": 60,
        },
        "analysis": {
            "intervalSeconds": 1,
            "alpha": ALPHA,
            "metrics": [metric, {"name": "errors", "type": "errors", "max": MOST_ERRORS}],
        },
    }
    return ModelDeploymentSpec.model_validate(body)


def walk_on_all_cores(seconds: float) -> tuple[Walked, int]:
    """A process for each core, half of the time with a sequential test and half with a threshold."""
    processes = os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        jobs = [
            (2 * number + sequential, seconds / 2.0, bool(sequential))
            for sequential in (0, 1)
            for number in range(processes)
        ]
        parts = pool.starmap(walk, jobs, chunksize=1)
    total = Walked()
    for part in parts:
        total = total.plus(part)
    return total, processes


def walk_sabotaged(seconds: float) -> Walked:
    """The same walk with every check answering yes: the oracle must object, or it sees nothing."""
    with patch.object(canary_steps, "judge_canary", lambda *_: Judgement(passed="yes")):
        return walk(1, seconds, sequential=True)
