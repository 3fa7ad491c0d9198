"""Replay and cost: recorded tasks, answered by the candidate and by the stable arm, and compared pair by pair."""

import math
import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import orjson

from learnloop_gates.cases import (
    DATA,
    Case,
    Labelled,
    Reply,
    Suite,
    SuiteError,
    asking,
    case_of,
    digest_of,
    need,
    rows,
    tried,
)
from learnloop_gates.model_client import SuiteSettings, Unanswered, answered, client_of

_DIGEST = digest_of("recorded_tasks.py", "suites.json")
FACTS = ("expected", "contains", "pattern", "call")
COST_TOKENS = 512
"""An answer of so many tokens costs 1; shorter ones in proportion."""


def replay(settings: SuiteSettings) -> Suite:
    """A failure is a task whose answer is not what the record says it must be.

    A line says how to tell: `expected` (the whole answer), `contains`, `pattern` (a regular expression) or `call` (the
    tool that must be called).

    Raises:
        SuiteError: recorded tasks are missing, or one cannot be judged.
    """
    if not settings.data:
        raise SuiteError("spec.gates.suites[].data: replay needs recorded tasks: name a ConfigMap with .jsonl keys")
    result = rows(settings.data)
    for row in result:
        if not any(row.get(fact) for fact in FACTS):
            raise SuiteError(f"a task cannot be judged: {str(row)[:120]}: set one of {', '.join(FACTS)}")
        _check_pattern(row.get("pattern"))
    cases = [case_of(row) for row in result]
    return Suite(cases, _fails, tried(DATA["replay"]["labelled"]), "recorded-results", _DIGEST, kind="pairs")


def cost(settings: SuiteSettings) -> Suite:
    """Each task's score falls with the tokens of its answer; an answer that had to be cut off is a failure."""
    cases = [case_of(row) for row in rows(settings.data)] if settings.data else _questions()
    return Suite(
        cases,
        _cut_off,
        [Labelled(cases[0], Reply("x", tokens=9, cut=cut), cut) for cut in (True, False)],
        "token-counts",
        _DIGEST,
        kind="pairs",
        score=lambda _, reply: 1.0 - min(1.0, reply.tokens / COST_TOKENS),
        most_tokens=COST_TOKENS,
    )


def _cut_off(_: Case, reply: Reply) -> str:
    if reply.tokens <= 0 and (reply.text or reply.calls):
        raise Unanswered("the answer has no usage.completion_tokens: its cost is unknown")
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
        raise SuiteError(f"pattern: {str(pattern)[:80]!r} is not a regular expression: {error}") from None


def _questions() -> list[Case]:
    pairs = product(DATA["cost"]["asks"], DATA["cost"]["things"])
    return [Case(asking(f"{ask.format(thing)} Answer briefly.")) for ask, thing in pairs]


NEAR = 0.05
"""Continuous actions agree where no number differs by more than this share of its range, or of 1."""


def is_of_numbers(row: Mapping[str, Any]) -> bool:
    """Whether a recorded task is an episode of a policy of numbers."""
    return "observations" in row


def policy_replay(episodes: list[dict[str, Any]]) -> Suite:
    """The suite; each case is one episode.

    Raises:
        SuiteError: an episode has no observation, or not one action for each.
    """
    for row in episodes:
        if len(need(row, "observations", list)) != len(need(row, "actions", list)):
            raise SuiteError(f"actions: one for each observation is needed: {str(row)[:120]}")
    cases = [Case((), facts=row) for row in episodes]
    return Suite(
        cases, _invalid, tried(DATA["replay"]["episodes"]), "action-spaces", _DIGEST, kind="pairs", score=_agreement
    )


class PolicyClient:
    """One arm's policy servers, by the Open Inference Protocol. Who names the version means this arm."""

    def __init__(self, url: str, deployment: str, revision: str, token: str = "", seconds: float = 30.0) -> None:
        self._url = f"{url}/v2/models/{deployment}/versions/{revision}/infer"
        self._client = client_of(revision, token, seconds)

    def close(self) -> None:
        self._client.close()

    def ask(self, case: Case, *, most_tokens: int = 0) -> Reply:
        """The greedy actions at all observations of the episode, as JSON in the reply's text.

        Raises:
            Unanswered: three times no answer, or a refusal.
        """
        rows = case.facts["observations"]
        flat = [float(number) for row in rows for number in row]
        tensor = {"name": "observation", "datatype": "FP32", "shape": [len(rows), len(rows[0])], "data": flat}
        answer = answered(self._client, self._url, content=orjson.dumps({"inputs": [tensor]}))
        if answer.status_code != 200:
            raise Unanswered(f"{self._url}: {answer.status_code} {answer.text[:300]}")
        return Reply(orjson.dumps(_actions(answer.content, len(rows))).decode())


def _actions(content: bytes, rows: int) -> list[Any]:
    """One action for each row: a number, or a list of them."""
    try:
        outputs = {item["name"]: item for item in orjson.loads(content)["outputs"]}
        result = outputs["action"]
        data, width = list(result["data"]), math.prod(result["shape"][1:])
    except (ValueError, KeyError, TypeError) as error:
        raise Unanswered(f"the answer has no output `action`: {error!r}"[:300]) from None
    if len(data) != rows * width:
        raise Unanswered(f"{len(data)} numbers for {rows} actions of {width}")
    return data if len(result["shape"]) == 1 else [data[row * width : (row + 1) * width] for row in range(rows)]


def _invalid(case: Case, reply: Reply) -> str:
    actions = orjson.loads(reply.text)
    allowed, low, high = (case.facts.get(key) for key in ("actions_allowed", "low", "high"))
    for action in actions:
        numbers = action if isinstance(action, list) else [action]
        if any(not isinstance(number, int | float) or not math.isfinite(number) for number in numbers):
            return "no-number"
        if allowed is not None and any(number != int(number) or not 0 <= number < allowed for number in numbers):
            return "no-such-action"
        if low is not None and any(number < bound for number, bound in zip(numbers, low, strict=False)):
            return "out-of-range"
        if high is not None and any(number > bound for number, bound in zip(numbers, high, strict=False)):
            return "out-of-range"
    return ""


def _agreement(case: Case, reply: Reply) -> float:
    actions, recorded = orjson.loads(reply.text), case.facts["actions"]
    alike = sum(_alike(one, other, case) for one, other in zip(actions, recorded, strict=True))
    return float(alike) / len(recorded)


def _alike(one: Any, other: Any, case: Case) -> bool:
    if not isinstance(one, list) and not isinstance(other, list) and case.facts.get("low") is None:
        return bool(one == other)
    own, others = (item if isinstance(item, list) else [item] for item in (one, other))
    low, high = case.facts.get("low") or [0.0] * len(own), case.facts.get("high") or [1.0] * len(own)
    ranges = zip(own, others, low, high, strict=False)
    return len(own) == len(others) and all(abs(a - b) <= NEAR * max(up - down, 1e-9) for a, b, down, up in ranges)
