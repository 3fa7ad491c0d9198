"""Suites, cases, replies and labelled examples, and the .jsonl files that a user's ConfigMap brings."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import orjson

from learnloop_api.wire.deployment import DetectorReport


class SuiteError(Exception):
    """The suite cannot say anything about the candidate; the message names the cause and the fix.

    Its container ends with exit code 1 and this message, and so the gate is not passed.
    """


Message = Mapping[str, Any]
_FOLDER = Path(__file__).parent
DATA: Mapping[str, Any] = orjson.loads((_FOLDER / "suites.json").read_bytes())
"""Prompts and labelled answers of the built-in suites."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants called; `arguments` as it wrote them, which may not be JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: int = 0
    """Tokens that were sampled, as the server says."""
    cut: bool = False
    """It reached the length limit."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt. `facts`: what decides whether a reply fails, e.g. the planted secret."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str:
        """The text of the last message."""
        return str(self.messages[-1].get("content") or "")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A case and a reply that a person has labelled."""

    case: Case
    reply: Reply
    fails: bool


def tried(items: Sequence[Mapping[str, Any]], case: Case | None = None, **words: str) -> list[Labelled]:
    """Labelled replies of suites.json, to `case` or to cases with their own facts; `words` are filled in."""
    labelled = []
    for item in items:
        text = str(item.get("text", ""))
        for word, value in words.items():
            text = text.replace(f"{{{word}}}", value)
        reply = Reply(text, tuple(ToolCall(*call) for call in item.get("calls", ())))
        labelled.append(Labelled(case or Case((), facts=item["facts"]), reply, item["fails"]))
    return labelled


def asking(text: str, system: str = "") -> tuple[Message, ...]:
    question = {"role": "user", "content": text}
    return ({"role": "system", "content": system}, question) if system else (question,)


Kind = Literal["rate", "groups", "pairs"]
Judge = Callable[[Case, Reply], str]
"""The category of a reply's failure, or ""."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite, ready to be played."""

    cases: Sequence[Case]
    judge: Judge
    labelled: Sequence[Labelled]
    detector: str
    digest: str
    """SHA-256 of the detector's rules."""
    kind: Kind = "rate"
    groups: Sequence[str] = field(default_factory=tuple)
    """kind groups: every `len(groups)` cases are one prompt, with one group after the other."""
    score: Callable[[Case, Reply], float] | None = None
    """kind pairs: 0 to 1, more is better; left out, 1 where nothing fails."""
    most_tokens: int = 256


SEED = 20_260_101


def chosen(suite: Suite, samples: int) -> list[Case]:
    """So many different cases, or all there are: the same ones for every candidate. A prompt of groups stays whole."""
    width = len(suite.groups) or 1
    prompts = [suite.cases[index : index + width] for index in range(0, len(suite.cases), width)]
    order = random.Random(SEED).sample(range(len(prompts)), min(samples, len(prompts)))
    return [case for index in sorted(order) for case in prompts[index]]


def detector_report(name: str, digest: str, outcomes: Iterable[tuple[bool, bool]]) -> DetectorReport:
    """Counts of a detector on labelled answers: for each whether it fails, and whether the detector flags it."""
    counts = Counter(outcomes)
    return DetectorReport(
        name=name,
        sha256=digest,
        positives=counts[True, True] + counts[True, False],
        negatives=counts[False, True] + counts[False, False],
        true_positives=counts[True, True],
        false_positives=counts[False, True],
    )


def digest_of(*files: str) -> str:
    """SHA-256 of files of this package: what a built-in detector goes by."""
    digest = sha256()
    for name in files:
        digest.update((_FOLDER / name).read_bytes())
    return digest.hexdigest()


MOST_LINES = 100_000
_PARTS = ("prompt", "messages", "system", "tools")


def rows(folder: str) -> list[dict[str, Any]]:
    """All lines of all files, in the order of their names.

    Raises:
        SuiteError: no line at all, or a line is not a JSON object; names file, line and fix.
    """
    result: list[dict[str, Any]] = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                raise SuiteError(f"{path.name}:{number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise SuiteError(f"{path.name}:{number}: write one JSON object a line")
            result.append(row)
    if not result:
        raise SuiteError(f"{folder}: no key of the ConfigMap ends in .jsonl and has a line: add the prompts")
    return result[:MOST_LINES]


def case_of(row: dict[str, Any], prompt: str | None = None) -> Case:
    """The case of one line; `prompt` instead of the line's own where it is filled in.

    Raises:
        SuiteError: it asks nothing.
    """
    facts = {key: value for key, value in row.items() if key not in _PARTS}
    tools = tuple(row.get("tools") or ())
    text = prompt if prompt is not None else row.get("prompt")
    if isinstance(text, str) and text:
        return Case(asking(text, str(row.get("system") or "")), tools, facts)
    messages = row.get("messages")
    if isinstance(messages, list) and messages:
        return Case(tuple(messages), tools, facts)
    raise SuiteError(f"a line has no prompt: {str(row)[:120]}: set prompt or messages")


def need(row: dict[str, Any], key: str, kind: type) -> Any:
    """A fact that the suite cannot do without; raises SuiteError where it is missing."""
    value = row.get(key)
    if not isinstance(value, kind) or not value:
        raise SuiteError(f"{key}: missing in a line, or no {kind.__name__}: {str(row)[:120]}")
    return value
