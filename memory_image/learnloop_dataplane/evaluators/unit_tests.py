"""`unit-tests`: the share of unit tests that the code of an output passes, in a Job that reaches nothing."""

from typing import ClassVar

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_api.kinds.evaluators import UnitTests as Settings
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text
from learnloop_dataplane.sandbox.cases import RunCase, TooLong


class UnitTests(EvaluatorType):
    """Tests passed of all tests there are. This process neither runs nor imports a line of either."""

    name: ClassVar[str] = "unit-tests"
    slow: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """0 to 1; 0 for code that hangs, dies or is no Python."""
        settings = spec.unit_tests or Settings()
        tests = settings.tests or (as_text(case.expected) if case.expected is not None else None)
        if tests is None:
            return Score(None, "there are no tests: give them as unitTests.tests, or as the episode's expected output")
        if tools.sandbox is None:
            return Score(None, "no sandbox is configured: have dataPlane.sandbox.enabled set")
        asked = RunCase(as_text(case.output), tests, settings.seconds, settings.memory_megabytes)
        try:
            found = await tools.sandbox.run(asked, tools.namespace)
        except TooLong as error:
            return Score(None, str(error))
        if found is None:
            return Score(0.0, "the sandbox was stopped: the code took more memory or time than it has")
        passed, total, note = found
        return Score(passed / total, note) if total else Score(None, note)
