"""Hyperparameter studies: one resource for each study, one for each of its trials; every write may be repeated."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from learnloop_api.wire.study import StudyOrder, StudyState, Trial, TrialProgress, TrialResult
from learnloop_dataplane.api.http.dependencies import Caller, NamePath, Training, answer, only, same
from learnloop_dataplane.api.http.json_bodies import json_body

router = APIRouter(prefix="/api/v1/training/studies", tags=["training"])
STUDIES = only("update", "studies")
"""The operator leads them."""
NumberPath = Annotated[int, Path(ge=0, lt=1000)]


@router.put("/{job}", response_model=StudyState, dependencies=[STUDIES])
async def put_study(
    job: NamePath, body: Annotated[StudyOrder, json_body(StudyOrder)], training: Training, caller: Caller
) -> Response:
    """Begins a study; the same again changes nothing. Another owner's study of the same name is forgotten."""
    same("job", job, body.job)
    return answer(await training.studies.ask(lambda studies: studies.put(caller.namespace, body)))


@router.get("/{job}", response_model=StudyState)
async def get_study(job: NamePath, training: Training, caller: Caller) -> Response:
    """All trials of a study; 404 when there is none."""
    return answer(await training.studies.ask(lambda studies: studies.get(caller.namespace, job)))


@router.delete("/{job}", status_code=204, dependencies=[only("delete", "studies")])
async def delete_study(job: NamePath, training: Training, caller: Caller) -> Response:
    """Forgets a study; one that never was is fine."""
    await training.studies.delete(caller.namespace, job)
    return Response(status_code=204)


@router.put("/{job}/trials/{number}", response_model=Trial, dependencies=[STUDIES])
async def put_trial(job: NamePath, number: NumberPath, training: Training, caller: Caller) -> Response:
    """Begins a trial with parameters that the sampler chooses, once: the same number has the same ones for ever."""
    return answer(await training.studies.ask(lambda studies: studies.ask(caller.namespace, job, number)))


@router.put("/{job}/trials/{number}/progress", response_model=Trial, dependencies=[STUDIES])
async def put_progress(
    job: NamePath,
    number: NumberPath,
    body: Annotated[TrialProgress, json_body(TrialProgress)],
    training: Training,
    caller: Caller,
) -> Response:
    """Keeps an intermediate value; the answer says whether the trial is to be stopped."""
    return answer(await training.studies.ask(lambda studies: studies.progress(caller.namespace, job, number, body)))


@router.put("/{job}/trials/{number}/result", response_model=Trial, dependencies=[STUDIES])
async def put_result(
    job: NamePath,
    number: NumberPath,
    body: Annotated[TrialResult, json_body(TrialResult)],
    training: Training,
    caller: Caller,
) -> Response:
    """Keeps the end of a trial: the first one that is told."""
    return answer(await training.studies.ask(lambda studies: studies.result(caller.namespace, job, number, body)))
