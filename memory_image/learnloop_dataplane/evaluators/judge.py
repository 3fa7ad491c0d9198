"""`judge`: a language model compares the output with the expected answer, in both orders.

Judges prefer an answer for its place (Zheng et al., "Judging LLM-as-a-judge with MT-Bench and Chatbot Arena", NeurIPS
2023). Verdicts that depend on the order are worth one half.
"""

import asyncio
from typing import ClassVar

from learnloop_api.kinds.evaluators import Evaluator, Judge
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, NoVerdict, Score, Tools, as_text


class Judged(EvaluatorType):
    """Share of the two orders in which the output is not the worse answer."""

    name: ClassVar[str] = "judge"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """0, 0.5 or 1."""
        settings = spec.judge or Judge()
        judge = tools.judge
        if judge is None:
            return Score(None, "no judge is configured: have dataPlane.judge.url and .model set")
        output, expected = as_text(case.output), as_text(case.expected)
        if output == expected:
            return Score(1.0, "the output is the expected answer")
        orders = ((output, expected), (expected, output))
        tasks = [
            asyncio.create_task(judge.better(settings.question, case.task, *order, namespace=tools.namespace))
            for order in orders
        ]
        try:
            forward, backward = await asyncio.gather(*tasks)
        except NoVerdict as error:
            return Score(None, str(error))
        finally:
            for task in tasks:
                task.cancel()
        value = ((forward != "B") + (backward != "A")) / 2
        return Score(value, f"output first: {forward}, expected first: {backward}")
