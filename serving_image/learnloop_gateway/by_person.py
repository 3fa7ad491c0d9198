"""What a conversation gets where a person decides in the model's place."""

import uuid

from learnloop_api import names
from learnloop_api.wire.language import Usage
from learnloop_api.wire.routing import Override
from learnloop_gateway.client_stream import Outgoing
from learnloop_gateway.openai_api.errors import ApiError
from learnloop_gateway.openai_api.replies import DONE, ChatReply
from learnloop_gateway.openai_api.requests import ChatRequest, CompletionRequest

NOBODY = Usage(prompt_tokens=0, completion_tokens=0)


def stopped(override: Override) -> ApiError:
    """The refusal of a stop: 403, which OpenAI's clients do not try again."""
    return ApiError(403, f"nobody gets an answer here, as ordered {override.told()}", code="stopped")


async def say_fixed(override: Override, model: str, request: ChatRequest | CompletionRequest, out: Outgoing) -> None:
    """The words that a person has ordered, whole or as a stream; no token of them is a model's.

    Raises:
        ApiError: 403, the order is an action, which nobody can say.
    """
    if override.answer is None:
        raise stopped(override)
    out.headers[names.HEADER_OVERRIDE] = "fixed"
    reply = ChatReply(f"override-{uuid.uuid4().hex[:24]}", model, chat=isinstance(request, ChatRequest))
    if not request.stream:
        await out.whole(200, reply.whole(override.answer, (), "stop", NOBODY))
        return
    counted = request.stream_options is not None and request.stream_options.include_usage
    await out.begin()
    await out.piece(reply.opening() + reply.piece(override.answer) + reply.end("stop"))
    await out.end((reply.counted(NOBODY) if counted else b"") + DONE)
