"""`unit-tests`: the share of tests that the code of an output passes. The code runs in a Job that reaches nothing."""

from typing import Any, ClassVar

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_api.kinds.evaluators import UnitTests as Settings
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text
from learnloop_dataplane.sandbox.cases import judge, read_tests
from learnloop_dataplane.sandbox.run_case import RunCase, TooLong


class UnitTests(EvaluatorType):
    """Tests passed of all tests there are. This process runs no line of the code, and the code sees no test."""

    name: ClassVar[str] = "unit-tests"
    slow: ClassVar[bool] = True

    def check(self, spec: Evaluator) -> None:
        """Reads the policy's tests."""
        if spec.unit_tests is not None and spec.unit_tests.tests is not None:
            try:
                read_tests(spec.unit_tests.tests)
            except ValueError as error:
                raise Invalid(str(error), field="unitTests.tests") from None

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """0 to 1; 0 for code that hangs, dies or is no Python."""
        settings = spec.unit_tests or Settings()
        given: Any = settings.tests if settings.tests is not None else case.expected
        if given is None:
            return Score(None, "there are no tests: give them as unitTests.tests, or as the episode's expected output")
        if tools.sandbox is None:
            return Score(None, "no sandbox is configured: have dataPlane.sandbox.enabled set")
        try:
            tests = read_tests(given)
            calls = [[test.call, test.args, test.kwargs] for test in tests]
            asked = RunCase(as_text(case.output), calls, settings.seconds, settings.memory_megabytes)
            answer = await tools.sandbox.run(asked, tools.namespace)
        except TooLong as error:
            return Score(None, str(error))
        except ValueError as error:
            return Score(None, str(error)[:500])
        if answer is None:
            return Score(0.0, "the sandbox was stopped: the code took more memory or time than it has")
        results, why = answer
        passed, note = judge(tests, results)
        return Score(passed / len(tests), f"{note}; {why}" if why else note)
