"""replay for policies of numbers: recorded observations, put to the candidate's policy servers and to stable's.

A line is one episode: `observations` (a list of lists of numbers) and `actions` (what was done at each). It may have
`actions_allowed` (how many there are), or `low` and `high` (bounds of each number of a continuous action). A failure is
an episode with an action that is no action there. The score of an episode is the share of its steps at which an arm
does what was recorded: record episodes that ended well.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from learnloop_api import names
from learnloop_common.tls.contexts import client_context
from learnloop_gates.cases import Case, Labelled, Reply
from learnloop_gates.errors import SuiteError
from learnloop_gates.model_client import TRIES, Unanswered
from learnloop_gates.prompt_files import need
from learnloop_gates.suite import Suite, digest_of

NEAR = 0.05
"""Continuous actions agree where no number differs by more than this share of its range, or of 1."""


def is_of_numbers(row: Mapping[str, Any]) -> bool:
    """Whether a recorded task is an episode of a policy of numbers."""
    return "observations" in row


def policy_replay(found: list[dict[str, Any]]) -> Suite:
    """The suite; each case is one episode.

    Raises:
        SuiteError: an episode has no observation, or not one action for each.
    """
    for row in found:
        if len(need(row, "observations", list)) != len(need(row, "actions", list)):
            raise SuiteError(f"actions: one for each observation is needed: {str(row)[:120]}")
    cases = [Case((), facts=row) for row in found]
    digest = digest_of(sys.modules[__name__])
    return Suite(cases, _invalid, _labelled(), "action-spaces", digest, kind="pairs", score=_agreement)


class PolicyClient:
    """One arm's policy servers, by the Open Inference Protocol. Who names the version means this arm."""

    def __init__(self, url: str, deployment: str, revision: str, token: str = "", seconds: float = 30.0) -> None:
        self._url = f"{url}/v2/models/{deployment}/versions/{revision}/infer"
        headers = {names.HEADER_ARM: revision, "content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        context = client_context()
        self._client = httpx.Client(verify=context, trust_env=False, timeout=seconds, headers=headers)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, case: Case, *, most_tokens: int = 0) -> Reply:
        """The greedy actions at all observations of the episode, as JSON in the reply's text.

        Raises:
            Unanswered: three times no answer.
        """
        rows = case.facts["observations"]
        flat = [float(number) for row in rows for number in row]
        tensor = {"name": "observation", "datatype": "FP32", "shape": [len(rows), len(rows[0])], "data": flat}
        why = ""
        for _ in range(TRIES):
            try:
                answer = self._client.post(self._url, content=orjson.dumps({"inputs": [tensor]}))
            except httpx.HTTPError as error:
                why = str(error) or type(error).__name__
                continue
            if answer.status_code == 200:
                return Reply(orjson.dumps(_actions(answer.content, len(rows))).decode())
            why = f"{answer.status_code} {answer.text[:300]}"
            if answer.status_code < 500:
                break
        raise Unanswered(f"{self._url}: {why}")


def _actions(content: bytes, rows: int) -> list[Any]:
    """One action for each row: a number, or a list of them."""
    try:
        outputs = {item["name"]: item for item in orjson.loads(content)["outputs"]}
        found = outputs["action"]
        data, width = list(found["data"]), math.prod(found["shape"][1:])
    except (ValueError, KeyError, TypeError) as error:
        raise Unanswered(f"the answer has no output `action`: {error!r}"[:300]) from None
    if len(data) != rows * width:
        raise Unanswered(f"{len(data)} numbers for {rows} actions of {width}")
    return data if len(found["shape"]) == 1 else [data[row * width : (row + 1) * width] for row in range(rows)]


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
    mine, theirs = (item if isinstance(item, list) else [item] for item in (one, other))
    low, high = case.facts.get("low") or [0.0] * len(mine), case.facts.get("high") or [1.0] * len(mine)
    ranges = zip(mine, theirs, low, high, strict=False)
    return len(mine) == len(theirs) and all(abs(a - b) <= NEAR * max(up - down, 1e-9) for a, b, down, up in ranges)


def _labelled() -> list[Labelled]:
    discrete = Case((), facts={"actions_allowed": 2, "actions": [0, 1]})
    wide = Case((), facts={"low": [-1.0], "high": [1.0], "actions": [[0.0]]})
    return [
        Labelled(discrete, Reply("[0, 1]"), False),
        Labelled(discrete, Reply("[0, 2]"), True),
        Labelled(discrete, Reply("[0, -1]"), True),
        Labelled(discrete, Reply("[0, 0.5]"), True),
        Labelled(discrete, Reply("[0, null]"), True),
        Labelled(wide, Reply("[[0.9]]"), False),
        Labelled(wide, Reply("[[1.5]]"), True),
        Labelled(wide, Reply("[[-1.5]]"), True),
    ]
