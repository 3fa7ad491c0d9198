"""The whole loop in one file: act, record, reward, train, prove, roll out by evidence, roll back.

    python examples/loop_in_one_file.py

It needs nothing but Python, and runs in a few seconds. learnloop does the same with pods, PyTorchJobs, an ONNX server
and Prometheus; its operator reaches the same verdicts as chapter 6 from the same counts.
"""

import json
import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# 1. A world. An agent crosses a slippery grid from S to G; a hole (O) ends its episode.

GRID = ["S...", ".O..", "...O", "O..G"]
SIZE, MOVES = len(GRID), [(-1, 0), (0, 1), (1, 0), (0, -1)]
SLIPS, LONGEST = 0.1, 40

State = tuple[int, int]
Step = tuple[State, int, State]


def move(state: State, action: int, dice: random.Random) -> State:
    """One step; with probability SLIPS the agent slides sideways."""
    if dice.random() < SLIPS:
        action = (action + dice.choice([1, 3])) % 4
    down, right = MOVES[action]
    return min(max(state[0] + down, 0), SIZE - 1), min(max(state[1] + right, 0), SIZE - 1)


# 2. Act. A model is a table of values; one behaviour, fixed with it, is trained, proven and served.


@dataclass(frozen=True)
class Model:
    """The thing that is trained, proven and served: the value of each action in each state."""

    revision: str
    values: dict[State, list[float]]
    explores: float = 0.1

    def act(self, state: State, dice: random.Random) -> int:
        """The best action, or any one with probability `explores`."""
        values = self.values.get(state, [0.0] * 4)
        if dice.random() < self.explores or max(values) == min(values):
            return dice.randrange(4)
        return values.index(max(values))


@dataclass(frozen=True)
class Episode:
    """One attempt, played by one revision from its first step to its last."""

    revision: str
    steps: list[Step]

    @property
    def success(self) -> bool:
        """Whether the agent reached G."""
        row, column = self.steps[-1][2]
        return GRID[row][column] == "G"


def play(model: Model, dice: random.Random) -> Episode:
    """One episode of a model."""
    state, steps = (0, 0), list[Step]()
    while len(steps) < LONGEST and GRID[state[0]][state[1]] not in "OG":
        action = model.act(state, dice)
        after = move(state, action, dice)
        steps.append((state, action, after))
        state = after
    return Episode(model.revision, steps)


# 3. Record. Every episode is a line of a file, and training reads nothing else.


def record(log: Path, episode: Episode) -> None:
    """Append an episode to the log."""
    with log.open("a") as lines:
        lines.write(json.dumps({"revision": episode.revision, "steps": episode.steps}) + "\n")


def recorded(log: Path) -> list[Episode]:
    """Every episode of the log."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [Episode(row["revision"], [(tuple(s), a, tuple(n)) for s, a, n in row["steps"]]) for row in rows]


# 4. Reward and train. A policy says what an episode is worth; the learner never sees the world itself.


def reward(episode: Episode) -> float:
    """The worth of an episode in 0..1: success, less a little for every step."""
    return max(0.0, 1.0 - 0.01 * len(episode.steps)) if episode.success else 0.0


def train(serves: Model, episodes: list[Episode], revision: str, dice: random.Random, sweeps: int = 40) -> Model:
    """Learn from the log by Q-learning, beginning with what serves."""
    values = {state: list(row) for state, row in serves.values.items()}
    lessons = [
        (step, reward(episode) if last else 0.0, last)
        for episode in episodes
        for step, last in zip(episode.steps, [False] * (len(episode.steps) - 1) + [True], strict=True)
    ]
    for sweep in range(sweeps):
        rate = 0.2 / (1 + sweep)
        dice.shuffle(lessons)
        for (state, action, after), gained, last in lessons:
            future = 0.0 if last else 0.95 * max(values.get(after, [0.0]))
            row = values.setdefault(state, [0.0] * 4)
            row[action] += rate * (gained + future - row[action])
    return Model(revision, values)


# 5. Prove. The candidate and what serves play the same held-out seeds, which no training has seen.


def proven(candidate: Model, serves: Model, seeds: range) -> bool:
    """Whether the candidate's mean reward is higher by more than chance explains (one-sided, 2.5 %)."""
    gains = [reward(play(candidate, random.Random(seed))) - reward(play(serves, random.Random(seed))) for seed in seeds]
    mean = sum(gains) / len(gains)
    error = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains))
    print(f"  proof: {mean:+.3f} ± {1.96 * error:.3f} reward over {len(gains)} held-out episodes")
    return mean - 1.96 * error > 0.0


# 6. Evidence. Is the canary worse than stable? Is it certainly not worse by more than `max_drop`?
#
# A test that is looked at after every episode must not count as a single look. So both questions are
# bets. A bet names the success rates it expects before it sees a batch of episodes. It gains by how much likelier they
# made the batch than the nearest rates at which the claim is false. If the claim is false, a bet can expect no gain:
# a fortune of 1/alpha comes up in at most a share alpha of all rollouts, however often one looks.
# docs/explanation/evidence.md has the sources.


@dataclass(frozen=True)
class Arm:
    """Episodes of an arm, and how many of them succeeded."""

    episodes: float = 0.0
    successes: float = 0.0

    def plus(self, other: "Arm") -> "Arm":
        """Both together."""
        return Arm(self.episodes + other.episodes, self.successes + other.successes)

    @property
    def rate(self) -> float:
        """The share that succeeded."""
        return self.successes / self.episodes

    def towards(self, rate: float, weight: float) -> float:
        """The success rate, drawn towards `rate` as if `weight` more episodes had had it."""
        return (self.successes + weight * rate) / (self.episodes + weight)


@dataclass
class Evidence:
    """Two bets on the same episodes. `worse` and `fine` are logarithms of what one unit of money has become."""

    max_drop: float
    alpha: float
    canary: Arm = Arm()
    stable: Arm = Arm()
    waiting: tuple[Arm, Arm] = (Arm(), Arm())
    worse: float = 0.0
    fine: float = 0.0

    def add(self, canary: Arm, stable: Arm) -> None:
        """Bet on what both arms played at the same time, by what was known before; a few episodes wait."""
        canary, stable = self.waiting[0].plus(canary), self.waiting[1].plus(stable)
        if canary.episodes < max(4.0, 0.04 * self.canary.episodes) or stable.episodes < 1:
            self.waiting = canary, stable
            return
        self.waiting = Arm(), Arm()
        episodes = self.canary.episodes + self.stable.episodes
        pooled = (self.canary.successes + self.stable.successes + 1.0) / (episodes + 2.0)

        # "Worse": expect a drop of twice the one that is tolerated, until the episodes tell better.
        share = self.canary.episodes / episodes if episodes else 0.5
        edge, drop = 0.5 / (episodes + 1.0), 2.0 * self.max_drop
        canarys = self.canary.towards(max(edge, pooled - (1.0 - share) * drop), 100.0)
        stables = self.stable.towards(min(1.0 - edge, pooled + share * drop), 100.0)
        self.worse += gain(stable, canary, stables, canarys, 0.0)

        # "Not worse by max_drop": expect what was seen, drawn towards one common rate.
        canarys, stables = self.canary.towards(pooled, 20.0), self.stable.towards(pooled, 20.0)
        self.fine += gain(canary, stable, canarys, stables, -self.max_drop)
        self.fine = min(self.fine, math.log(1.0 / self.alpha) + 2.0)  # wealth must not hide a canary that turns bad

        self.canary, self.stable = self.canary.plus(canary), self.stable.plus(stable)

    @property
    def verdict(self) -> str:
        """`pass`, `roll back` or `hold`."""
        bar = math.log(1.0 / self.alpha)
        return "pass" if self.fine >= bar else "roll back" if self.worse >= bar else "hold"

    def __str__(self) -> str:
        arms = f"success {self.canary.rate:.0%} of the canary, {self.stable.rate:.0%} of stable"
        return f"{self.canary.episodes:.0f} episodes: {arms}"


def gain(one: Arm, other: Arm, p: float, q: float, margin: float) -> float:
    """The logarithm of what a bet on the rates (p, q) makes of a batch, against "one <= other + margin"."""
    if p <= q + margin:
        return 0.0
    low, high = max(0.0, -margin), min(1.0, 1.0 - margin)
    for _ in range(48):  # the nearest rates at which the claim is false: where the slope of the divergence changes sign
        rate = 0.5 * (low + high)
        up = rate + margin
        slope = one.episodes * (up - p) / (up * (1.0 - up)) + other.episodes * (rate - q) / (rate * (1.0 - rate))
        low, high = (low, rate) if slope > 0.0 else (rate, high)
    rate = 0.5 * (low + high)
    return _likelier(one, p, rate + margin) + _likelier(other, q, rate)


def _likelier(arm: Arm, p: float, q: float) -> float:
    failures = arm.episodes - arm.successes
    return arm.successes * math.log(p / q) + failures * math.log((1.0 - p) / (1.0 - q))


# 7. Roll out. The canary gets 10, 25, 50 percent of the episodes, and all of them when every step has passed.

STEPS, PER_LOOK, PER_STEP = [10, 25, 50], 100, 60


def roll_out(canary: Model, stable: Model, log: Path, dice: random.Random) -> Model:
    """Give the canary more and more episodes; return the model that serves afterwards."""
    evidence = Evidence(max_drop=0.1, alpha=0.01)
    for weight in STEPS:
        began = evidence.canary.episodes
        while True:
            batch = {canary.revision: Arm(), stable.revision: Arm()}
            for episode in users(canary, stable, weight, dice):
                record(log, episode)
                batch[episode.revision] = batch[episode.revision].plus(Arm(1, episode.success))
            evidence.add(batch[canary.revision], batch[stable.revision])
            if evidence.verdict == "roll back":
                print(f"  {weight:3} %: rolled back, worse after {evidence}")
                return stable
            if evidence.verdict == "pass" and evidence.canary.episodes - began >= PER_STEP:
                print(f"  {weight:3} %: passed after {evidence}")
                break
    print(f"  100 %: {canary.revision} serves every episode")
    return canary


def users(canary: Model, stable: Model, weight: int, dice: random.Random) -> Iterator[Episode]:
    """The episodes of a moment; each belongs to one arm."""
    for _ in range(PER_LOOK):
        yield play(canary if dice.random() * 100 < weight else stable, dice)


# 8. The loop turns. Each turn begins with what serves and with everything that was experienced until then.


def main(turns: int = 4, seed: int = 7) -> dict[str, object]:
    """Turn the loop, then serve a model that is not the one that was proven; return how it ended."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        log, serves = Path(folder) / "episodes.jsonl", Model("v0", {}, explores=1.0)
        for turn in range(1, turns + 1):
            for _ in range(60):
                record(log, play(serves, dice))
            episodes = recorded(log)
            print(f"turn {turn}: {serves.revision} serves, {len(episodes)} episodes recorded")
            candidate = train(serves, episodes, f"v{turn}", dice)
            if proven(candidate, serves, range(turn * 1000, turn * 1000 + 500)):
                serves = roll_out(candidate, serves, log, dice)
            else:
                print("  refused: no gain beyond chance")

        broken = Model("broken", {state: row[::-1] for state, row in serves.values.items()})
        print(f"a bad model: the actions of {serves.revision} were mixed up after its proof")
        survivor = roll_out(broken, serves, log, dice)
        ended = [play(serves, dice).success for _ in range(500)]
        return {"serves": survivor.revision, "success": sum(ended) / len(ended), "episodes": len(recorded(log))}


if __name__ == "__main__":
    print(json.dumps(main()))
