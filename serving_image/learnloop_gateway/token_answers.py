"""An answer while its tokens arrive: its text, its tool calls and why it ended."""

import json
import logging
import time
import uuid
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from learnloop_api.wire.language import LanguageTurn, TokenSampling, ToolCall, Usage
from learnloop_gateway import chat_request, chat_tokens, model_servers, replies, tool_calls
from learnloop_gateway.open_chat import Row, Session, newest, results
from learnloop_gateway.recording import LanguageMetrics, Recording
from learnloop_gateway.settings import GatewaySettings

Shown = list[str | ToolCall]


class DrawnAnswer:
    """Tokens as they were drawn, and the text and calls in them."""

    def __init__(self, tokens: chat_tokens.ChatTokens, *, tools: bool, stops: Sequence[str]) -> None:
        self._tokens = tokens
        self._text = tokens.stream()
        self._stops = tool_calls.StopTexts(stops)
        self._reader = tool_calls.ToolCallReader(tools)
        self._finish: replies.Finish | None = None
        self._began = time.perf_counter()
        self._lost = False
        self.first_seconds: float | None = None
        self.ids: list[int] = []
        self.log_probs: list[float] = []

    @property
    def stopped(self) -> bool:
        """A text that ends the answer was written."""
        return self._stops.stopped

    @property
    def ended(self) -> bool:
        """The last token ends an answer."""
        return bool(self.ids) and self.ids[-1] in self._tokens.stops

    @property
    def complete(self) -> bool:
        """The server gave the reason why it stopped, or was stopped."""
        return self._finish is not None or self.stopped

    @property
    def measured(self) -> bool:
        """Each token has the probability it was drawn with, and none is missing."""
        return not self._lost and len(self.ids) == len(self.log_probs) > 0

    @property
    def text(self) -> str:
        """The text that the client received, without its calls."""
        return self._reader.text

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls that the client received."""
        return self._reader.calls

    @property
    def finish(self) -> replies.Finish:
        """Why it ended, in OpenAI's words."""
        if self._finish == "length" and not self.stopped:
            return "length"
        return "tool_calls" if self.calls else "stop"

    def take(self, drawn: model_servers.Drawn) -> Shown:
        """Add tokens; returns the text and calls that they complete."""
        if drawn.ids and self.first_seconds is None:
            self.first_seconds = time.perf_counter() - self._began
        shown: Shown = []
        for place, one in enumerate(drawn.ids):
            self.ids.append(one)
            if drawn.log_probs is not None:
                self.log_probs.append(drawn.log_probs[place])
            if text := self._stops.feed(self._text.step(one)):
                shown += self._reader.feed(text)
            if self.stopped:
                break
        if drawn.finish is not None:
            self._finish = drawn.finish
        # A server that sends no piece for half a character sends no token for it either.
        if drawn.total is not None and drawn.total != len(self.ids):
            self._lost = True
        return shown

    def close(self) -> Shown:
        """Return the text that waited for more when the stream ended."""
        return [*self._reader.feed(self._stops.close()), *self._reader.close()]


log = logging.getLogger(__name__)


@dataclass(slots=True)
class Turn:
    """A request on its way.

    Attributes:
        prompt: the tokens that are sent.
        row: the row that it continues; None: it begins one.
        length: tokens of that row when the turn began.
        reason: why it begins a row.
        new: messages since the last answer.
        offered: the tools that the model is shown.
    """

    session: Session
    request: chat_request.ChatRequest
    prompt: list[int]
    sampling: TokenSampling
    row: Row | None
    length: int
    reason: str
    new: list[chat_request.ChatMessage]
    offered: list[dict[str, Any]]
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.perf_counter)


class Answering:
    """Answers by a server of tokens."""

    def __init__(
        self,
        settings: GatewaySettings,
        tokens: chat_tokens.ChatTokens,
        upstream: model_servers.TokenServer,
        recording: Recording,
        metrics: LanguageMetrics,
    ) -> None:
        self._settings, self._tokens, self._upstream = settings, tokens, upstream
        self._recording, self._metrics = recording, metrics
        self._context = settings.model.context_length or tokens.context_length or 0
        self._tools = [tool.to_openai() for tool in settings.model.tools]
        self._own_sampling = settings.model.sampling

    async def answer(self, session: Session, request: chat_request.ChatRequest, out: replies.Outgoing) -> None:
        """Answer `request`.

        Raises:
            ApiError: the request cannot be answered; raised before the first byte of the answer alone.
            UpstreamDown: the server does not answer. After the first byte the stream has ended in an error, and the
                turn is recorded as failed.
        """
        turn = self._turn(session, request)
        answer = DrawnAnswer(self._tokens, tools=bool(turn.offered), stops=request.stops)
        reply = replies.ChatReply(f"chatcmpl-{turn.identity}", self._settings.serving.model_deployment, request.counts)
        try:
            await self._draw(turn, answer, reply, out)
        except model_servers.UpstreamBusy as error:
            self._metrics.throttled.inc()
            raise replies.ApiError(429, str(error), code="upstream_busy", retry_after=error.retry_after or 1) from error
        except model_servers.UpstreamRefused as error:
            raise replies.ApiError(400, str(error), code="upstream_refused") from error
        except model_servers.UpstreamDown as error:
            if not out.started:
                raise
            self._record(turn, answer, failed=True)
            failure = replies.ApiError(
                502, f"the model server failed in the middle of the answer: {error}", code="upstream"
            )
            await out.end(b"data: %b\n\n" % failure.to_json())
            raise
        last = answer.close()
        # Written before the answer ends: a client that has received the end can rely on the record.
        self._record(turn, answer, failed=False)
        await self._finish(turn, answer, reply, out, last)

    async def _draw(self, turn: Turn, answer: DrawnAnswer, reply: replies.ChatReply, out: replies.Outgoing) -> None:
        stream = turn.request.stream
        async with aclosing(self._upstream.draw(turn.prompt, turn.sampling, stream=stream)) as pieces:
            async for piece in pieces:
                try:
                    shown = answer.take(piece)
                except (OverflowError, UnicodeError, ValueError, TypeError) as error:
                    raise model_servers.UpstreamDown(
                        f"the server gave tokens that this model does not have: {error}"
                    ) from error
                if len(answer.ids) > (turn.sampling.max_tokens or len(answer.ids)):
                    raise model_servers.UpstreamDown(
                        f"the server gave more than the {turn.sampling.max_tokens} tokens asked for"
                    )
                if stream and not out.started:
                    await out.begin()
                    await out.piece(reply.opening())
                if stream:
                    await out.piece(b"".join(map(reply.piece, shown)))
                if answer.stopped:
                    break
        if not answer.complete:
            raise model_servers.UpstreamDown("the server ended an answer without saying why")

    async def _finish(
        self, turn: Turn, answer: DrawnAnswer, reply: replies.ChatReply, out: replies.Outgoing, last: Shown
    ) -> None:
        spent = Usage(prompt_tokens=len(turn.prompt), completion_tokens=len(answer.ids))
        if not turn.request.stream:
            await out.whole(200, reply.whole(answer.text, answer.calls, answer.finish, spent))
            return
        if not out.started:
            await out.begin()
            await out.piece(reply.opening())
        await out.end(b"".join(map(reply.piece, last)) + reply.end(answer.finish) + reply.counted(spent) + replies.DONE)

    def _turn(self, session: Session, request: chat_request.ChatRequest) -> Turn:
        """The tokens to send; raises ApiError."""
        if request.store is False:
            session.private = True
        offered = request.offered or ([] if request.tool_choice == "none" else self._tools)
        prompt, row, reason, new = self._prompt(session, request, offered)
        if session.clean:
            # A row that begins has the whole history in its tokens, answers of others included.
            shown = new if row is not None else request.messages
            session.clean = all(self._recording.is_clean(text) for one in shown for text in one.texts)
        room = self._context - len(prompt) if self._context else request.most or self._own_sampling.max_tokens
        if room < 1:
            message = f"messages: {len(prompt)} tokens leave no room in the model's context of {self._context}"
            raise replies.ApiError(400, message, param="messages", code="context_length_exceeded")
        sampling = self._sampling(request, room)
        return Turn(session, request, prompt, sampling, row, len(row.ids) if row else 0, reason, new, offered)

    def _sampling(self, request: chat_request.ChatRequest, room: int) -> TokenSampling:
        own = self._own_sampling
        return TokenSampling(
            temperature=own.temperature if request.temperature is None else request.temperature,
            top_p=own.top_p if request.top_p is None else request.top_p,
            top_k=own.top_k if request.top_k is None else request.top_k,
            max_tokens=min(request.most or own.max_tokens, room),
            seed=request.seed,
        )

    def _prompt(
        self, session: Session, request: chat_request.ChatRequest, offered: list[dict[str, Any]]
    ) -> tuple[list[int], Row | None, str, list[chat_request.ChatMessage]]:
        new, reason = session.following(request.messages, _key(offered))
        row = session.row
        if row is not None and not reason:
            try:
                more = self._tokens.continuation([one.to_template() for one in new], offered, row.ended)
            except chat_tokens.NoContinuation as error:
                log.warning("a conversation begins a new row of tokens: %s", error)
                reason = "template"
            else:
                return row.ids + more, row, "", new
        prompt = self._tokens.opening([one.to_template() for one in request.messages], offered)
        # A changed history is new as a whole.
        current = newest(request.messages) if row is not None and reason != "history" else list(request.messages)
        return prompt, None, reason or ("elsewhere" if session.joined else "first"), current

    def _record(self, turn: Turn, answer: DrawnAnswer, *, failed: bool) -> None:
        """Record the turn, and remember the row that the next one continues."""
        metrics = self._metrics
        if answer.first_seconds is not None:
            metrics.first.observe(answer.first_seconds)
        metrics.tokens["input"].inc(len(turn.prompt))
        metrics.tokens["output"].inc(len(answer.ids))
        session = turn.session
        row = self._row(turn, answer, failed)
        if session.clean and answer.text:
            session.clean = self._recording.is_clean(answer.text)
        if session.clean and answer.calls:
            session.clean = all(self._recording.is_clean(one.arguments) for one in answer.calls)
        session.count(len(turn.prompt), len(answer.ids), len(answer.calls))
        text = "nothing"
        if self._recording.on and not session.private and not session.named and answer.ids:
            tokens = answer.measured and session.clean
            written = self._token_step(turn, answer, row, failed) if tokens else text_step(turn.new, message(answer))
            if self._recording.turn(session, written):
                text = "tokens" if tokens else "text"
        metrics.turns[text].inc()
        session.turns += 1

    def _row(self, turn: Turn, answer: DrawnAnswer, failed: bool) -> int:
        """The row that the turn belongs to; the next request is compared with it."""
        session, row, reason = turn.session, turn.row, turn.reason
        if row is not None and (session.row is not row or len(row.ids) != turn.length):
            row, reason = None, "parallel"
        if row is None:
            self._metrics.rows[reason or "first"].inc()
            row = session.begin_row()
        row.ids = turn.prompt + answer.ids
        calls = tuple((one.id, one.name, chat_request.canonical(one.arguments)) for one in answer.calls)
        row.keys = [*(one.key for one in turn.request.messages), ("assistant", answer.text, calls, None)]
        row.offered, row.ended = _key(turn.offered), answer.ended
        row.broken = "stop" if answer.stopped or failed else ""
        return row.number

    def _token_step(self, turn: Turn, answer: DrawnAnswer, row: int, failed: bool) -> dict[str, Any]:
        base = self._settings.model.base.sha256
        adapter = self._settings.serving.model_sha256
        recorded = LanguageTurn(
            turn_id=turn.identity,
            session=turn.session.episode_id,
            row=row,
            position=turn.session.turns,
            prompt_ids=turn.prompt,
            sampled_ids=answer.ids,
            log_probs=answer.log_probs,
            sampling=turn.sampling,
            finish_reason="error" if failed else answer.finish,
            policy_revision=self._settings.serving.revision,
            base_sha256=base,
            adapter_sha256=adapter if adapter and adapter != base else None,
            template_sha256=self._tokens.template_sha256,
            tool_calls=answer.calls,
            tool_results=results(turn.new),
            usage=Usage(prompt_tokens=len(turn.prompt), completion_tokens=len(answer.ids)),
            latency_seconds=time.perf_counter() - turn.began,
            at=turn.at,
        )
        return recorded.to_document()


def text_step(new: Sequence[chat_request.ChatMessage], answer: dict[str, Any]) -> dict[str, Any]:
    """A turn as text, in the form of the SDK's Conversation: rewarded and searched, but not learned from."""
    shown = [one.model_dump(mode="json", exclude_none=True) | {"content": one.text} for one in new]
    return {"observation": {"messages": shown}, "action": answer}


def message(answer: DrawnAnswer) -> dict[str, Any]:
    calls = {"tool_calls": [replies.call(one) for one in answer.calls]} if answer.calls else {}
    return {"role": "assistant", "content": answer.text} | calls


def _key(offered: list[dict[str, Any]]) -> str:
    return json.dumps(offered, sort_keys=True) if offered else ""
