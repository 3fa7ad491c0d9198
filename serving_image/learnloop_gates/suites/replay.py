"""replay and cost: recorded tasks, put to the candidate and to what serves. Does it get worse, or dearer?"""

import re
import sys

from learnloop_gates.cases import Case, Labelled, Reply, ToolCall, said
from learnloop_gates.errors import SuiteError
from learnloop_gates.model_client import Unanswered
from learnloop_gates.prompt_files import case_of, rows
from learnloop_gates.settings import SuiteSettings
from learnloop_gates.suite import Suite, digest_of

FACTS = ("expected", "contains", "pattern", "call")
COST_TOKENS = 512
"""An answer of so many tokens costs 1; shorter ones in proportion."""


def replay(settings: SuiteSettings) -> Suite:
    """A failure is a task whose answer is not what the record says it must be.

    A line says how to tell: `expected` (the whole answer), `contains`, `pattern` (a regular expression) or `call` (the
    tool that must be called).

    Raises:
        SuiteError: there are no recorded tasks, or one cannot be judged.
    """
    if not settings.data:
        raise SuiteError("spec.gates.suites[].data: replay needs recorded tasks: name a ConfigMap with .jsonl keys")
    found = rows(settings.data)
    for row in found:
        if not any(row.get(fact) for fact in FACTS):
            raise SuiteError(f"a task cannot be judged: {str(row)[:120]}: set one of {', '.join(FACTS)}")
        _check_pattern(row.get("pattern"))
    cases = [case_of(row) for row in found]
    return Suite(cases, _fails, _labelled(), "recorded-results", digest_of(sys.modules[__name__]), kind="pairs")


def cost(settings: SuiteSettings) -> Suite:
    """Each task's score falls with the tokens of its answer; an answer that had to be cut off is a failure."""
    cases = [case_of(row) for row in rows(settings.data)] if settings.data else _questions()
    suite = Suite(
        cases,
        _cut_off,
        [*(Labelled(cases[0], Reply("x", tokens=9, cut=cut), cut) for cut in (True, False))],
        "token-counts",
        digest_of(sys.modules[__name__]),
        kind="pairs",
        score=lambda _, reply: 1.0 - min(1.0, reply.tokens / COST_TOKENS),
        most_tokens=COST_TOKENS,
    )
    return suite


def _cut_off(_: Case, reply: Reply) -> str:
    if reply.tokens <= 0 and (reply.text or reply.calls):
        raise Unanswered("the answer has no usage.completion_tokens: what it cost is not known")
    return "cut-off" if reply.cut else ""


def _fails(case: Case, reply: Reply) -> str:
    facts, text = case.facts, reply.text.strip()
    if facts.get("call") and facts["call"] not in [call.name for call in reply.calls]:
        return "no-call"
    if facts.get("expected") and text != str(facts["expected"]).strip():
        return "wrong"
    if facts.get("contains") and str(facts["contains"]).lower() not in text.lower():
        return "wrong"
    if facts.get("pattern") and not re.search(str(facts["pattern"]), text[:20_000]):
        return "wrong"
    return ""


def _check_pattern(pattern: object) -> None:
    try:
        re.compile(str(pattern or ""))
    except re.error as error:
        raise SuiteError(f"pattern: {str(pattern)[:80]!r} is no regular expression: {error}") from None


def _questions() -> list[Case]:
    things = ("a river", "a bridge", "bread", "a violin", "rain", "a bicycle", "glass", "a clock", "tea", "an elevator")
    asks = (
        "What is {}?", "How is {} made?", "Name three uses of {}.", "Who needs {}?", "Describe {} to a child.",
        "What does {} cost?", "When was {} invented?", "What goes with {}?", "Where does one find {}?",
        "What is the opposite of {}?",
    )  # fmt: skip
    return [Case(said(f"{ask.format(thing)} Answer briefly.")) for ask in asks for thing in things]


def _labelled() -> list[Labelled]:
    exact, holds = Case(said("2+2?"), facts={"expected": "4"}), Case(said("Capital?"), facts={"contains": "Paris"})
    match, call = Case(said("Date?"), facts={"pattern": r"\d{4}-\d\d"}), Case(said("Look."), facts={"call": "find"})
    return [
        Labelled(exact, Reply("4"), False),
        Labelled(exact, Reply("It is 4"), True),
        Labelled(holds, Reply("It is paris."), False),
        Labelled(holds, Reply("It is Rome."), True),
        Labelled(match, Reply("2026-01"), False),
        Labelled(match, Reply("January"), True),
        Labelled(call, Reply("", (ToolCall("find", "{}"),)), False),
        Labelled(call, Reply("I found it."), True),
    ]
