"""What the caller's namespace has used of its quotas."""

from fastapi import APIRouter, Response

from learnloop_dataplane.api.http.dependencies import Caller, Quota, answer

router = APIRouter(prefix="/api/v1/quotas", tags=["quotas"])


@router.get("")
async def get_quotas(quotas: Quota, caller: Caller) -> Response:
    """Used and allowed bytes of artifacts and checkpoints, memories, and episodes a second; null: no limit."""
    return answer(await quotas.shown(caller.namespace))
