"""From a search space to the specs of trials, refused as a whole when any corner of it could not be trained."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from learnloop_api.kinds.study import SearchDimension
from learnloop_api.kinds.training.algorithms import ALGORITHMS
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.training.study.snapshot import trial_name

WORDS = {"true": True, "false": False}
LONGEST_NAME = 50


def trial_spec(spec: TrainingJobSpec, parameters: Mapping[str, Any], *, suspend: bool = False) -> dict[str, Any]:
    """The spec of one trial: the job's own, with these hyperparameters and without a study.

    The gates stay with the job. Raises pydantic.ValidationError when a value is out of bounds.
    """
    body = spec.to_kube()
    body.pop("study", None)
    body["hyperparameters"] = {**body["hyperparameters"], **parameters}
    body["gates"] = {"significant": False}
    evaluation = spec.evaluation
    body["evaluation"] = {
        **body["evaluation"],
        "validationEpisodes": max(evaluation.validation_episodes, evaluation.episodes),
    }
    body["suspend"] = suspend
    body.pop("deadlineSeconds", None)  # it is the study's: what is left of it no trial can know
    return TrainingJobSpec.model_validate(body).to_kube()


def problem(name: str, spec: TrainingJobSpec) -> str | None:
    """Why this study cannot be: field, value and fix in one sentence."""
    assert spec.study is not None
    longest = trial_name(name, spec.study.trials - 1)
    if len(longest) > LONGEST_NAME:
        short = LONGEST_NAME - len(longest) + len(name)
        return f"metadata.name: {name!r} is too long for a study, its trials are named {longest}; use at most {short}"
    takes = ALGORITHMS[spec.algorithm].fields
    for dimension in spec.study.space:
        parameter = dimension.parameter
        where = f"spec.study.space[{parameter}]"
        if parameter not in takes:
            return f"{where}: {spec.algorithm} has no such hyperparameter; it has {', '.join(sorted(takes))}"
        for value in corners(dimension):
            why = _refusal(spec, parameter, value)
            if why:
                return f"{where}: {value!r} {why}; correct the space"
    return None


def corners(dimension: SearchDimension) -> list[Any]:
    """The least and the largest value, or all of a list."""
    for bounds in (dimension.float_, dimension.int_):
        if bounds is not None:
            return [bounds.low, bounds.high]
    if dimension.choices is not None:
        return [WORDS.get(word, word) for word in dimension.choices]
    return [list(layers) for layers in dimension.layers or ()]


def _refusal(spec: TrainingJobSpec, parameter: str, value: Any) -> str:
    try:
        trial_spec(spec, {parameter: value})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"is refused: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return ""
