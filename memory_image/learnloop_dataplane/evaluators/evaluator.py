"""The interface of evaluators: a case, a score, and the tools for it.

A new evaluator is one module of this package, an entry in all_evaluators.py, and its settings in `kinds.evaluators`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from learnloop_api.kinds.evaluators import Evaluator

if TYPE_CHECKING:
    from learnloop_dataplane.sandbox.limited_run import RunCase


MAX_TEXT = 262_144
"""Characters of an output or an expected answer that an evaluator reads; a longer one is not scored."""


@dataclass(frozen=True)
class Case:
    """The task, the output of an agent (any JSON; None: unknown), and the correct output (None: unknown)."""

    task: str = ""
    task_type: str = ""
    output: Any = None
    expected: Any = None


@dataclass(frozen=True)
class Score:
    """The result of an evaluator.

    Attributes:
        value: 0 to 1; None: the measurement is missing.
        note: the reason, in one sentence.
        pending: a later call may have the answer.
    """

    value: float | None
    note: str = ""
    pending: bool = False


Scorer = Callable[[str, str, str], Awaitable[float]]
"""A reward model's score of an answer, by digest, question and answer. Raises NoScore, or Unavailable."""


Verdict = Literal["A", "B", "tie"]


class Comparer(Protocol):
    """Compares two answers; see `llm_judge.JudgeClient`."""

    async def better(self, question: str, task: str, first: str, second: str, *, namespace: str = "") -> Verdict: ...


class Sandbox(Protocol):
    """Runs untrusted code; see `learnloop_dataplane.sandbox`."""

    async def run(self, case: "RunCase", namespace: str = "") -> tuple[list[Any], str] | None:
        """The results of the calls, and why some are missing; None: it was stopped without an answer.

        Raises:
            TooLong: the case does not fit.
            Unavailable: it was not run; try again later.
        """


@dataclass(frozen=True)
class Tools:
    """Access to what lies outside of a case. Without a tool (None), evaluators that need it give no value.

    Attributes:
        judge: the language model that compares answers.
        sandbox: runs code.
        scorer: asks the namespace's reward models.
        namespace: the tenant; slots are shared fairly by namespace.
    """

    judge: Comparer | None = None
    sandbox: Sandbox | None = None
    scorer: Scorer | None = None
    namespace: str = ""


class NoVerdict(Exception):
    """The judge's answer has no verdict."""


class EvaluatorType(ABC):
    """One value of `evaluator.type`. Stateless: one object serves all policies."""

    name: ClassVar[str]
    needs_expected: ClassVar[bool] = False

    def check(self, spec: Evaluator) -> None:  # noqa: B027 - most have nothing to look at
        """Checks the settings when a policy is published.

        Raises:
            Invalid: field, value and fix.
        """

    @abstractmethod
    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """Scores one output. Nothing that an agent sends makes it raise.

        Raises:
            Unavailable: a service that it asks does not answer; try again later.
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
