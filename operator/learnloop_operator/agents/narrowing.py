"""A training request applied to the agent's template: never more than the template allows, or a refusal by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from learnloop_api.kinds.learning_agent import Training
from learnloop_api.kinds.study import SearchDimension
from learnloop_api.kinds.training.algorithms import ALGORITHMS, READS_LOG
from learnloop_api.kinds.training.logged_data import EpisodeFilter
from learnloop_api.kinds.training_job import TrainingTemplate
from learnloop_api.wire.training_request import RequestedDataset, TrainingRequest
from learnloop_operator.core.manifests import quantity
from learnloop_operator.core.times import parse, stamp

WORDS: Mapping[bool, str] = {True: "true", False: "false"}
GPU = "/gpu"
"""Suffixes of the extended resources of GPUs: nvidia.com/gpu, amd.com/gpu."""
AT_MOST, AT_LEAST = "ask for at most that", "ask for at least that"


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The training with the request in force; with refusals it is the template unchanged."""

    training: Training
    refusals: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """All refusals."""
        return "; ".join(self.refusals)


def narrowed(training: Training, request: TrainingRequest | None) -> Narrowed:
    """The template narrowed by the request, or each field that would widen it, with its value and the fix."""
    if request is None or not request.narrows:
        return Narrowed(training)
    refusals: list[str] = []
    template = training.template.to_kube()
    data = training.data.to_kube()
    _hyperparameters(training, request, template, refusals)
    _compute(training.template, request, template, refusals)
    _evaluation(training.template, request, template, refusals)
    if request.dataset is not None and training.template.algorithm not in READS_LOG:
        refusals.append(f"dataset: {training.template.algorithm} reads no logged episodes; leave it out")
    elif request.dataset is not None:
        data["filter"] = _dataset(training.data.filter or EpisodeFilter(), request.dataset, refusals)
    if refusals:
        return Narrowed(training, tuple(refusals))
    try:
        return Narrowed(Training.model_validate({**training.to_kube(), "template": template, "data": data}))
    except ValidationError as error:
        return Narrowed(training, tuple(_refused(item) for item in error.errors(include_url=False)[:8]))


def _hyperparameters(
    training: Training, request: TrainingRequest, template: dict[str, Any], refusals: list[str]
) -> None:
    allowed = {item.parameter: item for item in training.requests.hyperparameters}
    algorithm = training.template.algorithm
    fields = ALGORITHMS[algorithm].fields
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
    if chosen:
        template["hyperparameters"] = {**template["hyperparameters"], **chosen}


def _outside(dimension: SearchDimension, wish: Any) -> str:
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
        return "" if word in dimension.choices else f"is none of {', '.join(dimension.choices)}"
    layers = [list(item) for item in dimension.layers or ()]
    return "" if wish in layers else f"is none of {', '.join(map(str, layers))}"


def _compute(spec: TrainingTemplate, request: TrainingRequest, template: dict[str, Any], refusals: list[str]) -> None:
    wish = request.compute
    if wish is None:
        return
    for field, wanted, most in (
        ("totalSteps", wish.total_steps, spec.total_steps),
        ("workers", wish.workers, spec.workers),
        ("deadlineSeconds", wish.deadline_seconds, spec.deadline_seconds),
    ):
        if wanted is not None and most is not None and wanted > most:
            refusals.append(_beyond(f"compute.{_snake(field)}", wanted, "above", f"template.{field}", most, AT_MOST))
        elif wanted is not None:
            template[field] = wanted
    if wish.gpus is not None:
        _gpus(wish.gpus, template, refusals)


def _gpus(wanted: int, template: dict[str, Any], refusals: list[str]) -> None:
    resources = template.get("pod", {}).get("resources") or {}
    result = {name: amount for name, amount in (resources.get("limits") or {}).items() if name.endswith(GPU)}
    most = sum(int(quantity(amount) or 0) for amount in result.values())
    if wanted > most or len(result) > 1:
        field = "template.pod.resources.limits"
        refusals.append(_beyond("compute.gpus", wanted, "above the GPUs of", field, most, AT_MOST))
        return
    for part in ("limits", "requests"):
        for name in result:
            if name in (resources.get(part) or {}):
                resources[part][name] = str(wanted)


def _evaluation(
    spec: TrainingTemplate, request: TrainingRequest, template: dict[str, Any], refusals: list[str]
) -> None:
    wish = request.evaluation
    if wish is None:
        return
    for room, field, wanted, least in (
        ("evaluation", "episodes", wish.episodes, spec.evaluation.episodes),
        ("gates", "minReturn", wish.min_return, spec.gates.min_return),
        ("gates", "minImprovement", wish.min_improvement, spec.gates.min_improvement),
        ("gates", "significant", wish.significant, spec.gates.significant),
    ):
        if wanted is not None and least is not None and wanted < least:
            refusals.append(
                _beyond(f"evaluation.{_snake(field)}", wanted, "below", f"template.{room}.{field}", least, AT_LEAST)
            )
        elif wanted is not None:
            template.setdefault(room, {})[field] = wanted


def _dataset(spec: EpisodeFilter, wish: RequestedDataset, refusals: list[str]) -> dict[str, Any]:
    """The filter that lets through what both let through."""
    result = spec.to_kube()

    def take(field: str, wanted: Any, bound: Any, wider: Callable[[Any, Any], bool], fix: str) -> None:
        if wanted is None:
            return
        if bound is not None and wider(wanted, bound):
            where = f"spec.training.data.filter.{field}"
            refusals.append(_beyond(f"dataset.{_snake(field)}", wanted, "wider than", where, bound, fix))
        else:
            result[field] = wanted

    since, until = (stamp(item) if item else None for item in (wish.since, wish.until))
    take("since", since, spec.since, lambda wanted, bound: _before(wanted, bound), "ask for a later time")
    take("until", until, spec.until, lambda wanted, bound: _before(bound, wanted), "ask for an earlier time")
    take("maxAgeSeconds", wish.max_age_seconds, spec.max_age_seconds, lambda wanted, bound: wanted > bound, AT_MOST)
    take("minReward", wish.min_reward, spec.min_reward, lambda wanted, bound: wanted < bound, AT_LEAST)
    take("maxReward", wish.max_reward, spec.max_reward, lambda wanted, bound: wanted > bound, AT_MOST)
    take("success", wish.success, spec.success, lambda wanted, bound: wanted != bound, "leave it out")
    take("optedIn", wish.opted_in, spec.opted_in or None, lambda wanted, bound: wanted != bound, "leave it out")
    within = "name only those"
    take("tasks", wish.tasks or None, spec.tasks or None, lambda wanted, bound: not set(wanted) <= set(bound), within)
    take(
        "modelRevisions",
        wish.model_revisions or None,
        spec.model_revisions or None,
        lambda wanted, bound: not set(wanted) <= set(bound),
        within,
    )
    refusals += _empty(result)
    return result


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


def _before(one: str, other: str) -> bool:
    first, second = parse(one), parse(other)
    return first is not None and second is not None and first < second


def _beyond(field: str, wanted: Any, how: str, where: str, bound: Any, fix: str) -> str:
    return f"{field}: {wanted} is {how} {where} ({bound}); {fix}, or leave it out"


def _refused(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"][:6])
    text = str(item["msg"])
    return f"{where}: {item.get('input')!r}: {text[:1].lower()}{text[1:]}"[:300]


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
