"""A training request applied to the agent's template: never more than the template allows, or a refusal by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import gt, lt, ne
from typing import Any, NamedTuple

from pydantic import ValidationError

from learnloop_api.kinds import learning_agent
from learnloop_api.kinds.training import algorithms, study
from learnloop_api.wire.training_request import TrainingRequest
from learnloop_operator.core.times import parse, stamp

WORDS: Mapping[bool, str] = {True: "true", False: "false"}


def _beyond(wanted: list[str], limit: list[str]) -> bool:
    return not set(wanted) <= set(limit)


def _before(one: str, other: str) -> bool:
    first, second = parse(one), parse(other)
    return first is not None and second is not None and first < second


def _after(one: str, other: str) -> bool:
    return _before(other, one)


class Bound(NamedTuple):
    """A field of a request, the field of the agent's training that bounds it, and what would widen that."""

    wish: str
    field: str
    widens: Callable[[Any, Any], bool]
    how: str
    fix: str


FILTER = "data.filter"
AT_MOST, AT_LEAST, LEAVE, ONLY = "ask for at most that", "ask for at least that", "leave it out", "name only those"
BOUNDS = (
    Bound("compute.total_steps", "template.totalSteps", gt, "above", AT_MOST),
    Bound("compute.workers", "template.workers", gt, "above", AT_MOST),
    Bound("compute.deadline_seconds", "template.deadlineSeconds", gt, "above", AT_MOST),
    Bound("evaluation.episodes", "template.evaluation.episodes", lt, "below", AT_LEAST),
    Bound("evaluation.min_return", "template.gates.minReturn", lt, "below", AT_LEAST),
    Bound("evaluation.min_improvement", "template.gates.minImprovement", lt, "below", AT_LEAST),
    Bound("evaluation.significant", "template.gates.significant", lt, "below", AT_LEAST),
    Bound("dataset.since", f"{FILTER}.since", _before, "wider than", "ask for a later time"),
    Bound("dataset.until", f"{FILTER}.until", _after, "wider than", "ask for an earlier time"),
    Bound("dataset.max_age_seconds", f"{FILTER}.maxAgeSeconds", gt, "wider than", AT_MOST),
    Bound("dataset.min_reward", f"{FILTER}.minReward", lt, "wider than", AT_LEAST),
    Bound("dataset.max_reward", f"{FILTER}.maxReward", gt, "wider than", AT_MOST),
    Bound("dataset.success", f"{FILTER}.success", ne, "wider than", LEAVE),
    Bound("dataset.opted_in", f"{FILTER}.optedIn", ne, "wider than", LEAVE),
    Bound("dataset.tasks", f"{FILTER}.tasks", _beyond, "wider than", ONLY),
    Bound("dataset.model_revisions", f"{FILTER}.modelRevisions", _beyond, "wider than", ONLY),
)
"""A limit that is missing, empty or false bounds nothing."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The training with the request in force; with refusals it is the template unchanged."""

    training: learning_agent.Training
    refusals: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return "; ".join(self.refusals)


def narrowed(training: learning_agent.Training, request: TrainingRequest | None) -> Narrowed:
    """The template narrowed by the request, or each field that would widen it, with its value and the fix."""
    if request is None or not request.narrows:
        return Narrowed(training)
    refusals: list[str] = []
    body, wishes = training.to_kube(), request.model_dump(exclude_none=True)
    _hyperparameters(training, request, body, refusals)
    if request.dataset is not None and training.template.algorithm not in algorithms.READS_LOG:
        refusals.append(f"dataset: {training.template.algorithm} reads no logged episodes; leave it out")
        del wishes["dataset"]
    for bound in BOUNDS:
        _take(bound, wishes, body, refusals)
    if request.dataset is not None:
        refusals += _empty((body.get("data") or {}).get("filter") or {})
    if refusals:
        return Narrowed(training, tuple(refusals))
    try:
        return Narrowed(learning_agent.Training.model_validate(body))
    except ValidationError as error:
        return Narrowed(training, tuple(_refused(item) for item in error.errors(include_url=False)[:8]))


def _take(bound: Bound, wishes: dict[str, Any], body: dict[str, Any], refusals: list[str]) -> None:
    part, name = bound.wish.split(".")
    wanted = (wishes.get(part) or {}).get(name)
    if wanted is None or wanted == []:
        return
    wanted = stamp(wanted) if isinstance(wanted, datetime) else wanted
    *folders, field = bound.field.split(".")
    place = body
    for folder in folders:
        place = place.setdefault(folder, {})
    limit = place.get(field)
    if limit is not None and limit is not False and limit != [] and bound.widens(wanted, limit):
        where = f"spec.training.{bound.field}" if bound.field.startswith(FILTER) else bound.field
        refusals.append(f"{bound.wish}: {wanted} is {bound.how} {where} ({limit}); {bound.fix}, or leave it out")
    else:
        place[field] = wanted


def _hyperparameters(
    training: learning_agent.Training, request: TrainingRequest, body: dict[str, Any], refusals: list[str]
) -> None:
    allowed = {item.parameter: item for item in training.requests.hyperparameters}
    algorithm = training.template.algorithm
    fields = algorithms.ALGORITHMS[algorithm].fields
    chosen: dict[str, Any] = {}
    for name, wish in request.hyperparameters.items():
        dimension = allowed.get(name)
        if dimension is None:
            previous = f"it may set {', '.join(sorted(allowed))}" if allowed else "it may set none"
            refusals.append(
                f"hyperparameters.{name}: {wish!r}: spec.training.requests.hyperparameters does not list it; {previous}"
            )
        elif name not in fields:
            has = ", ".join(sorted(fields))
            refusals.append(f"hyperparameters.{name}: {algorithm} has no such hyperparameter; it has {has}")
        elif why := _outside(dimension, wish):
            refusals.append(f"hyperparameters.{name}: {wish!r} {why}")
        else:
            chosen[name] = wish
    body["template"]["hyperparameters"] |= chosen


def _outside(dimension: study.SearchDimension, wish: Any) -> str:
    """Reason why the value is not one of those allowed; "" where it is."""
    number = wish if isinstance(wish, int | float) and not isinstance(wish, bool) else None
    if dimension.float_ is not None:
        low, high = dimension.float_.low, dimension.float_.high
        return "" if number is not None and low <= number <= high else f"is not a number from {low:g} to {high:g}"
    if dimension.int_ is not None:
        whole = dimension.int_
        fits = isinstance(number, int) and whole.low <= number <= whole.high and not (number - whole.low) % whole.step
        steps = f" in steps of {whole.step}" if whole.step > 1 else ""
        return "" if fits else f"is not a whole number from {whole.low} to {whole.high}{steps}"
    if dimension.choices is not None:
        word = WORDS[wish] if isinstance(wish, bool) else wish
        return "" if word in dimension.choices else f"is not one of {', '.join(dimension.choices)}"
    layers = [list(item) for item in dimension.layers or ()]
    return "" if wish in layers else f"is not one of {', '.join(map(str, layers))}"


def _empty(result: dict[str, Any]) -> list[str]:
    """Contradictions in the filter, whichever half causes them."""
    problems = []
    if "since" in result and "maxAgeSeconds" in result:
        problems.append("dataset.since: maxAgeSeconds already says where the window begins; ask for max_age_seconds")
    if "since" in result and "until" in result and not _before(result["since"], result["until"]):
        problems.append(f"dataset.since: {result['since']} is not before until ({result['until']}); correct the window")
    if "minReward" in result and "maxReward" in result and result["minReward"] > result["maxReward"]:
        problems.append(f"dataset.min_reward: {result['minReward']} is above max_reward; correct the range")
    return problems


def _refused(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"][:6])
    text = str(item["msg"])
    return f"{where}: {item.get('input')!r}: {text[:1].lower()}{text[1:]}"[:300]
