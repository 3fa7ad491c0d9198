"""`unit-tests`: the share of tests that the code passes, run in a sandbox."""

from typing import ClassVar

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools


class UnitTestShare(EvaluatorType):
    """Passed of all. Code that cannot be imported passes none."""

    name: ClassVar[str] = "unit-tests"
    slow: ClassVar[bool] = True

    def check(self, spec: Evaluator) -> None:
        """The tests are Python."""
        tests = spec.unit_tests.tests if spec.unit_tests else None
        if tests is None:
            return
        try:
            compile(tests, "tests.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "msg", None) or str(error)
            raise Invalid(f"not Python: {why}; correct it", field="unitTests.tests", value=tests) from None

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """The share, when the sandbox has it."""
        if not isinstance(case.output, str):
            return Score(0.0, "the output is no text of code")
        if tools.sandbox is None:
            return Score(None, "unit tests are off here: have dataPlane.sandbox.enabled set")
        if case.trajectory_id is None:
            return Score(None, "unit tests run for stored episodes only")
        if (spec.unit_tests is None or spec.unit_tests.tests is None) and not isinstance(case.expected, str):
            return Score(None, "there are no tests: set unitTests.tests, or send them as expected")
        return await tools.sandbox(case, spec)
