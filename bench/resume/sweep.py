"""The kill sweep: ranks die at random moments, and the finished run must not show it.

Lost work: the seconds of training between the state the run resumed from and the strike. It is asked only of strikes
that hit training; those that hit the start or the proof lose none. Identical is judged when a run has finished, and
counts for all strikes it took.
"""

import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from bench.resume.cases import CASES, order
from bench.resume.gang import Gang, Note, Result, result
from bench.resume.watch.sitecustomize import BEGUN, CAPTURED

STRIKES_PER_RUN = 12  # at most: most runs have finished by then
ANYWHERE = 0.25  # share of strikes at any moment of a process's life; the others wait until all ranks train
TRAINED, LIVED = 2.5, 4.0  # seconds: how late a strike may come after training began, or after the last start


@dataclass(slots=True)
class Strike:
    """One signal, and what came of it."""

    number: signal.Signals
    ranks: list[int]
    at: float
    exits: list[float] = field(default_factory=list)  # seconds until the ranks it was sent to had left


@dataclass(slots=True)
class Tally:
    """Of all runs together."""

    points: int = 0  # signals to be sent
    began: float = field(default_factory=time.monotonic)
    runs: list[dict[str, Any]] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    lost_to_sigterm: list[float] = field(default_factory=list)
    lost_to_kill: list[float] = field(default_factory=list)
    sigterm: list[float] = field(default_factory=list)
    back: dict[int, list[float]] = field(default_factory=lambda: {1: [], 2: []})
    signals: Counter[str] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        """Signals to runs that have finished."""
        return sum(self.signals.values())


def moment(notes: list[Note], strike: Strike, previous: float) -> tuple[str, float]:
    """Rank 0's work when the signal came, and the seconds of training that were lost."""
    since = [note for note in notes if previous < note.at <= strike.at]
    after = next((note for note in notes if note.what == BEGUN and note.at > strike.at), None)
    begun = next((index for index in range(len(since) - 1, -1, -1) if since[index].what == BEGUN), None)
    if begun is None:
        return "start", 0.0
    trained = since[begun:]
    if after is None:  # it never trained again: the proof was as good as written
        return "proof", 0.0
    # On SIGTERM a state is captured after the signal: look as far as the next beginning.
    life = [note for note in notes if trained[0].at <= note.at < after.at]
    caught = next((note for note in reversed(life) if note.what == CAPTURED and note.step == after.step), trained[0])
    final = trained[-1].what == CAPTURED and after.step == trained[-1].step
    return ("proof" if final and strike.at - trained[-1].at > 0.2 else "training"), max(0.0, trained[-1].at - caught.at)


def interrupted(case: str, ranks: int, strikes: int, dice: random.Random, directory: Path) -> tuple[Gang, list[Strike]]:
    """A run that takes up to so many strikes on its way to the end."""
    gang, done = Gang(order(case, checkpoint={"everySeconds": 1}), ranks, directory), list[Strike]()
    end = time.monotonic() + 1200
    try:
        while len(done) < strikes:
            anywhere = dice.random() < ANYWHERE
            since = done[-1].at if done else 0.0
            delay = dice.uniform(0, LIVED if anywhere else TRAINED)
            begun: float | None = gang.started if anywhere else None
            while begun is None or time.time() < begun + delay:
                if gang.look():
                    return gang, done
                if begun is None and gang.begun_after(since):
                    begun = time.time()
                if time.monotonic() > end:
                    raise SystemExit(f"no progress in {directory}")
                time.sleep(0.01)
            victims = dice.choice([[0]] if ranks == 1 else [[0], [1], [0, 1]])
            number = dice.choice([signal.SIGKILL, signal.SIGTERM])
            strike = Strike(number, victims, 0.0)
            strike.at = gang.strike(victims, number)
            done.append(strike)
            _await_exits(gang, strike, end)
        gang.finish()
    finally:
        gang.close()
    return gang, done


def _await_exits(gang: Gang, strike: Strike, end: float) -> None:
    waiting = {rank: gang.processes[rank] for rank in strike.ranks}
    while waiting and time.monotonic() < end:
        for rank, process in list(waiting.items()):
            if process.poll() is not None:
                strike.exits.append(time.time() - strike.at)
                del waiting[rank]
        gang.look()
        time.sleep(0.005)


def note_run(tally: Tally, gang: Gang, strikes: list[Strike], case: str, calm: Result) -> None:
    """Add a finished run."""
    outcome, notes = result(gang), gang.notes()
    begun = [note.at for note in notes if note.what == BEGUN]
    previous = 0.0
    for strike in strikes:
        what, lost = moment(notes, strike, previous)
        tally.hit[what] += 1
        tally.signals[strike.number.name] += 1
        if what == "training":
            tally.lost.append(lost)
            if strike.number is signal.SIGTERM:
                tally.sigterm.append(max(strike.exits))
                tally.lost_to_sigterm.append(lost)
            else:
                tally.lost_to_kill.append(lost)
        again = [at for at in begun if at > strike.at]
        if again:
            tally.back[gang.size].append(again[0] - strike.at)
        previous = strike.at
    same = outcome == calm
    run = {"case": case, "ranks": gang.size, "kills": len(strikes), "identical": same, "starts": gang.starts}
    tally.runs.append(run)
    summary = f"{case}, {gang.size} rank(s): {len(strikes)} strikes, {'identical' if same else 'DIFFERENT'}"
    print(f"{tally.sent}/{tally.points} after {time.monotonic() - tally.began:.0f} s: {summary}", flush=True)
    if not same:
        print(f"  uninterrupted {calm}\n  interrupted   {outcome}\n  in {gang.directory}", flush=True)


PLACES = tuple((case, ranks) for case in CASES for ranks in (1, 2))


def undisturbed(case: str, ranks: int, directory: Path) -> Result:
    """The end of a run without interruptions."""
    gang = Gang(order(case, checkpoint={"everySeconds": 1}), ranks, directory)
    try:
        gang.finish()
    finally:
        gang.close()
    trained = [note.at for note in gang.notes()]
    print(f"{case}, {ranks} rank(s), undisturbed: {trained[-1] - trained[0]:.1f} s of training", flush=True)
    return result(gang)


def sweep(points: int, seed: int, root: Path, places: Sequence[tuple[str, int]] = PLACES) -> Tally:
    """Strike until `points` signals were sent, spread evenly over the numbers of ranks and their cases in turn.

    A rank has one thread, so as many runs go on in parallel as the cores have room for ranks.
    """
    tally, sizes = Tally(points=points), sorted({ranks for _, ranks in places})
    for position, ranks in enumerate(sizes):
        upto = points * (position + 1) // len(sizes)
        cases = [case for case, size in places if size == ranks]
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // ranks)) as pool:
            _strike(tally, upto, cases, ranks, seed, root, pool)
    return tally


def _strike(
    tally: Tally, upto: int, cases: Sequence[str], ranks: int, seed: int, root: Path, pool: ThreadPoolExecutor
) -> None:
    """Until `upto` signals were sent altogether, by runs with so many ranks."""
    folders = [root / f"calm-{case}-{ranks}" for case in cases]
    calm = dict(zip(cases, pool.map(undisturbed, cases, repeat(ranks), folders), strict=True))
    running: dict[Future[tuple[Gang, list[Strike]]], tuple[str, int]] = {}
    number = 0
    while True:
        promised = tally.sent + sum(wanted for _, wanted in running.values())
        while promised < upto and len(running) < max(1, (os.cpu_count() or 1) // ranks):
            case, wanted = cases[number % len(cases)], min(STRIKES_PER_RUN, upto - promised)
            folder, dice = root / f"run-{number}-{case}-{ranks}", random.Random(f"{seed} {ranks} {number}")
            running[pool.submit(interrupted, case, ranks, wanted, dice, folder)] = case, wanted
            promised, number = promised + wanted, number + 1
        if not running:
            return
        for ended in wait(running, return_when=FIRST_COMPLETED).done:
            case, _ = running.pop(ended)
            note_run(tally, *ended.result(), case, calm[case])


def figures(tally: Tally) -> dict[str, Any]:
    """For the JSON line."""
    whole = [run for run in tally.runs if run["identical"]]

    def spread(values: list[float]) -> list[float]:
        ordered = sorted(values)
        return [round(ordered[len(ordered) * part // 100], 2) for part in (50, 90)] + [round(max(values), 2)]

    return {
        "kills": sum(run["kills"] for run in tally.runs),
        "identical": sum(run["kills"] for run in whole),
        "runs": len(tally.runs),
        "runs_identical": len(whole),
        "signals": dict(tally.signals),
        "hit": dict(tally.hit),
        "lost_work_p50_s": round(statistics.median(tally.lost), 3) if tally.lost else None,
        "lost_work_p50_p90_max_s": spread(tally.lost) if tally.lost else None,
        "lost_work_kill9_p50_s": round(statistics.median(tally.lost_to_kill), 3) if tally.lost_to_kill else None,
        "lost_work_sigterm_max_s": round(max(tally.lost_to_sigterm), 3) if tally.lost_to_sigterm else None,
        "sigterm_to_exit_p50_p90_max_s": spread(tally.sigterm) if tally.sigterm else None,
        "training_again_p50_p90_max_s": {str(n): spread(times) for n, times in tally.back.items() if times},
    }
