"""A chat model behind an OpenAI-compatible server."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from learnloop_common.chat import ChatFields
from learnloop_dataplane.model_servers.openai_api import ModelServer, NotTaken

T = TypeVar("T")


class ChatModel:
    """One model of one server, asked at temperature 0 where it takes one."""

    def __init__(self, server: ModelServer, model: str, most_tokens: int) -> None:
        self.server, self._model, self._most = server, model, most_tokens
        self._fields = ChatFields()

    async def ask(self, messages: Sequence[dict[str, str]], read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer; raises as ModelServer.post."""
        body = {"model": self._model, "messages": list(messages), "temperature": 0, "max_tokens": self._most}
        while True:
            sent = self._fields.of(body)
            try:
                return await self.server.post("chat/completions", sent, read)
            except NotTaken as problem:
                if not self._fields.refused(sent, str(problem)):
                    raise
