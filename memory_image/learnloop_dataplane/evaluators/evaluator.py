"""What an evaluator is given, what it answers, and what it is.

A new evaluator is one module beside this one, an entry in registry.py, and its settings in `kinds.evaluators`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from learnloop_api.kinds.evaluators import Evaluator, OwnHistory

if TYPE_CHECKING:
    from learnloop_dataplane.evaluators.judge_client import JudgeClient
    from learnloop_dataplane.sandbox.run_case import RunCase


MAX_TEXT = 262_144
"""Characters of an output or an expected answer that an evaluator reads; a longer one is not scored."""


@dataclass(frozen=True)
class Case:
    """One finished task, as its agent told it.

    Attributes:
        agent: whose task it was.
        output: what came out, any JSON; None: nobody said.
        expected: what should have come out; None: nobody knows.
        metadata: whatever else the agent said of it.
        steps: how many steps it took.
        seconds: how long it took; None: nobody knows.
        values: named outcome values.
        trajectory_id: of the stored episode; None where nothing is stored.
        seq: its place in the order of arrival; None where nothing is stored.
    """

    agent: str = ""
    task: str = ""
    task_type: str = ""
    output: Any = None
    expected: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    success: bool | None = None
    steps: int = 0
    seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    trajectory_id: str | None = None
    seq: int | None = None


@dataclass(frozen=True)
class Score:
    """What an evaluator found.

    Attributes:
        value: 0 to 1; None: it could not tell, and the measurement is missing.
        note: one sentence, why.
        pending: an answer is on its way; ask again later.
    """

    value: float | None
    note: str = ""
    pending: bool = False


@dataclass(frozen=True)
class Standing:
    """An episode among `episodes` earlier ones: so many of them needed more, so many as much."""

    episodes: int
    more: int
    equal: int


History = Callable[[Case, OwnHistory, float], Awaitable[Standing]]


Scorer = Callable[[str, str, str], Awaitable[float]]
"""A reward model's score of an answer, by digest, question and answer. Raises scorers.Refused, or Unavailable."""


class Sandbox(Protocol):
    """Runs code that nobody trusts; see `learnloop_dataplane.sandbox`."""

    async def run(self, case: "RunCase", namespace: str = "") -> tuple[list[Any], str] | None:
        """The results of the calls, and why there are no more; None: it was stopped without a word.

        Raises:
            TooLong: the case does not fit.
            Unavailable: nobody ran it; ask again later.
        """


@dataclass(frozen=True)
class Tools:
    """What evaluators need of the world. A tool that is None is not there: what needs it cannot tell.

    Attributes:
        history: how an episode stands among the agent's earlier ones.
        judge: the language model that compares answers.
        sandbox: where code is run.
        scorer: what asks the namespace's reward models.
        namespace: whose work it is; namespaces have their turns.
    """

    history: History | None = None
    judge: "JudgeClient | None" = None
    sandbox: Sandbox | None = None
    scorer: Scorer | None = None
    namespace: str = ""


class NoVerdict(Exception):
    """The judge answered, and what it said is no verdict."""


class EvaluatorType(ABC):
    """One value of `evaluator.type`. Stateless: one object serves all policies."""

    name: ClassVar[str]
    """As a RewardPolicy writes it."""
    needs_output: ClassVar[bool] = True
    needs_expected: ClassVar[bool] = False

    def check(self, spec: Evaluator) -> None:  # noqa: B027 - most have nothing to look at
        """Looks at the settings when a policy is published.

        Raises:
            Invalid: field, value and fix.
        """

    @abstractmethod
    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """Scores one output. What the agent sent never makes it raise.

        Raises:
            Unavailable: something it asks does not answer; the same question may be answered later.
        """


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON with sorted keys.

    Raises:
        ValueError: a number has more digits than are read.
        RecursionError: it is too deep.
    """
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def squeezed(text: str) -> str:
    """Without space around it, and with one space for each run of space in it."""
    return " ".join(text.split())


FEWEST = 10
"""Earlier successful episodes; fewer say nothing."""


class OwnHistoryShare(EvaluatorType):
    """Share of the earlier successes that needed more, ties half. A failure is no efficiency: it has 0."""

    name: ClassVar[str] = "own-history"
    needs_output: ClassVar[bool] = False

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """The share; without enough history it cannot tell."""
        settings = spec.own_history or OwnHistory()
        if case.success is False:
            return Score(0.0, "the task failed")
        needed = measured(settings, case)
        if needed is None:
            return Score(None, f"nobody said how much it needed ({settings.key or settings.measure})")
        if tools.history is None or not case.agent:
            return Score(None, "there is no history without an agent")
        standing = await tools.history(case, settings, needed)
        if standing.episodes < FEWEST:
            return Score(None, f"{standing.episodes} earlier successes, {FEWEST} needed")
        better = (standing.more + 0.5 * standing.equal) / standing.episodes
        return Score(better, f"{needed:g}; {standing.more} of {standing.episodes} earlier successes needed more")


def measured(settings: OwnHistory, case: Case) -> float | None:
    """What this episode needed; None where nobody said."""
    if settings.measure == "steps":
        return float(case.steps)
    if settings.measure == "seconds":
        return case.seconds
    found = case.values.get(settings.key or "")
    return float(found) if isinstance(found, int | float) else None
