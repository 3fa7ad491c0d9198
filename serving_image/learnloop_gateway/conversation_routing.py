"""Requests in one gateway process: find the conversation, its arm and its server; else ask the fallback."""

import asyncio
import logging
import time
from collections.abc import Mapping

import orjson
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.routing import EndEpisode, Override
from learnloop_gateway import chat_request, model_servers, open_chat, recording, text_answers, token_answers
from learnloop_gateway.arms import Arms, Forwarding, Place, Unreachable, say_fixed, stopped
from learnloop_gateway.replies import ApiError, Outgoing, invalid, of_refusal
from learnloop_gateway.settings import GatewaySettings
from learnloop_serving.callers import Callers
from learnloop_serving.episodes import Episodes
from learnloop_serving.refusals import Refusal
from learnloop_serving.server_metrics import Metrics

log = logging.getLogger(__name__)
CHAT = "/v1/chat/completions"
FALLBACK = "fallback"
PREPARE_PAUSE = 1.0
MOST_METADATA = 63
"""Keys of a conversation: a trajectory holds 64, and `user_id` is the gateway's own."""
HANDED_ON = ("authorization", "content-type", "accept", names.HEADER_TOKEN)
"""Headers of a client that the gateway of another arm gets."""

Headers = Mapping[str, str]


class Gateway:
    """Everything one process holds.

    Attributes:
        draining: the process is about to end, so it is not ready.
        loaded: the model server has answered once. If it fails later, the process stays up to count the arm's failures
            and to answer from the fallback.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        arms: Arms,
        episodes: Episodes,
        upstream: model_servers.Upstream,
        own: token_answers.Answering | text_answers.Relaying,
        fallback: text_answers.Relaying | None,
        sessions: recording.OpenSessions,
        metrics: Metrics,
        language: recording.LanguageMetrics,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.callers = Callers(settings.serving.caller_keys, settings.serving.served_namespaces)
        self.draining = False
        self.loaded = False
        self.drain_seconds = settings.serving.drain_seconds
        self._arms, self._episodes, self._upstream = arms, episodes, upstream
        self._own, self._fallback, self._sessions, self._language = own, fallback, sessions, language
        self._forwarding = Forwarding()

    @property
    def ready(self) -> bool:
        """May this pod get requests?"""
        return self.loaded and self._episodes.has_table and not self.draining

    async def prepare(self) -> None:
        """Wait until the arm's server has its weights and answers."""
        started, message = time.monotonic(), ""
        while not self.loaded:
            try:
                await self._upstream.prepare()
                self.loaded = True
            except model_servers.UpstreamDown as error:
                if str(error) != message:
                    message = str(error)
                    log.warning("the model server does not answer yet: %s", message)
                await asyncio.sleep(PREPARE_PAUSE)
        self.metrics.model_load_seconds.set(time.monotonic() - started)
        log.info("the model server answers after %.1f s", time.monotonic() - started)

    async def complete(self, headers: Headers, body: bytes, out: Outgoing) -> None:
        """POST /v1/chat/completions. Raises ApiError and Refusal before an answer began."""
        request = chat_request.read_chat(body)
        if request.model != self.settings.serving.model_deployment:
            text = f"model: {request.model!r} is not served here: {self.settings.serving.model_deployment!r} is"
            raise ApiError(404, text, param="model", code="model_not_found")
        override = self._arms.override(self.settings.agent)
        if override is not None and not self._judges(headers):
            await self._by_person(override, request, headers, body, out)
            return
        await self._at(self._place(headers), headers, body, request, out)

    def _judges(self, headers: Headers) -> bool:
        """Is the caller an account that may choose an arm, as gates do?"""
        if names.HEADER_ARM not in headers or self.settings.serving.routing_mode == "gateway":
            return False
        subject = self.callers.subject(headers.get("authorization", "").encode("latin-1", "replace"))
        return subject is not None and _account(subject) in self.settings.accounts_that_pin

    async def _by_person(
        self,
        override: Override,
        request: chat_request.ChatRequest,
        headers: Headers,
        body: bytes,
        out: Outgoing,
    ) -> None:
        """Obey a person's override. A conversation under way ends, and counts for no arm."""
        self.metrics.apart["act", "overridden"].inc()
        episode = headers.get(names.HEADER_EPISODE, "")
        if session := self._sessions.find(self._arms.own_id(episode)):
            session.evidence = False
            await self._sessions.drop(session)
        if episode:
            out.headers[names.HEADER_EPISODE] = episode
        if override.instead == "fixed":
            await say_fixed(override, self.settings.serving.model_deployment, request, out)
            return
        if override.instead == "stop":
            raise stopped(override)
        if self._fallback is None:
            text = f"no fallback is configured, and an override orders it {override.sentence()}"
            raise ApiError(503, text, code="no_fallback", retry_after=60)
        out.headers |= {names.HEADER_REVISION: FALLBACK, names.HEADER_OVERRIDE: "fallback"}
        await self._ask_fallback(request, body, out)

    def _place(self, headers: Headers) -> Place:
        """The conversation of a request, a new one if it names none; raises ApiError and Refusal."""
        if not self._episodes.has_table:
            raise Refusal(503, "NotReady", "no routing table has been read yet")
        if episode := headers.get(names.HEADER_EPISODE):
            place = self._arms.find(episode)
        elif arm := headers.get(names.HEADER_ARM):
            self._check_pin(headers)
            place = self._arms.named_arm(arm)
        else:
            place = self._arms.open()
        if place.url and names.HEADER_HOP in headers:
            text = f"this is arm {self.settings.serving.revision}, and the conversation belongs to another one"
            raise ApiError(421, text, code="other_arm")
        return place

    def _check_pin(self, headers: Headers) -> None:
        """May the caller name an arm? Raises ApiError 403."""
        if self.settings.serving.routing_mode == "gateway":
            return  # the header is how a Gateway keeps a conversation at its arm
        subject = self.callers.subject(headers.get("authorization", "").encode("latin-1", "replace"))
        if subject is None:
            return  # without known callers, anybody can ask the arm's own Service anyway
        account = _account(subject)
        if account not in self.settings.accounts_that_pin:
            text = f"{names.HEADER_ARM}: {account} may not choose an arm: leave the header out"
            raise ApiError(403, text, code="pin_refused")

    async def _at(
        self,
        place: Place,
        headers: Headers,
        body: bytes,
        request: chat_request.ChatRequest,
        out: Outgoing,
    ) -> None:
        """Answer by the conversation's arm; if it does not answer, by the stable arm or the fallback."""
        if place.continues and has_answers(request):  # the history has answers of another arm
            place = self._arms.helped(place)
        elif place.continues:
            self._arms.begun(place)
        out.headers |= {names.HEADER_EPISODE: place.shown, names.HEADER_REVISION: place.opening.revision}
        try:
            if place.url:
                await self._forwarding.forward(place.url, CHAT, self._onward(place, headers), body, out)
            else:
                await self._here(place, request, body, out)
            return
        except Unreachable as error:
            log.warning("arm %s: %s", place.opening.revision, error)
            if not place.named and self._arms.stable_elsewhere(place.opening.revision):
                stable = self._arms.open(stable_only=True, continues=place.opening.episode_id)
                if stable.opening.revision != place.opening.revision:
                    await self._at(stable, headers, body, request, out)
                    return
            failure: Exception = error
        except model_servers.UpstreamDown as error:
            if out.started:
                return  # the stream has ended in an error
            failure = error
        if self._fallback is None or place.named:
            raise ApiError(502, f"the model server does not answer: {failure}", code="upstream", retry_after=1)
        await self._stand_in(place, request, body, out)

    def _onward(self, place: Place, headers: Headers) -> dict[str, str]:
        onward = {name: headers[name] for name in HANDED_ON if name in headers}
        return onward | {names.HEADER_EPISODE: place.shown, names.HEADER_HOP: "1"}

    async def _here(self, place: Place, request: chat_request.ChatRequest, body: bytes, out: Outgoing) -> None:
        """Answer by the own arm's server, and count the turn as evidence."""
        if not place.named:
            self._count_decision(place)
        touched = not place.named and self._episodes.touched(place.opening)
        existing = self._sessions.find(place.opening.episode_id) if touched else None
        if existing is not None and not existing.private:
            await self._sessions.drop(existing)
        session = self._session(place, request, touched=touched)
        session.evidence = session.evidence and not place.helped
        out.headers[names.HEADER_TRAJECTORY] = session.trajectory_id
        session.busy += 1
        start = time.perf_counter()
        try:
            if isinstance(self._own, token_answers.Answering):
                await self._own.answer(session, request, out)
            else:
                await self._own.answer(session, request, orjson.loads(body), out)
        except ApiError as error:
            if not place.named and error.status == 400:
                self.metrics.apart["act", "invalid"].inc()
            raise
        except model_servers.UpstreamDown:
            self._count(place, time.perf_counter() - start, failed=True)
            raise
        finally:
            session.busy -= 1
            self._sessions.recording.mark(session)
        self._count(place, time.perf_counter() - start, failed=False)

    def _count_decision(self, place: Place) -> None:
        """Raises Refusal 429 when this gateway's part of spec.decisionLimits is used up."""
        try:
            self._episodes.count_decision(place.opening)
        except Refusal as refusal:
            if refusal.apart is not None:
                self.metrics.apart["act", refusal.apart].inc()
            self._language.throttled.inc()
            raise

    def _count(self, place: Place, seconds: float, *, failed: bool) -> None:
        """Count a turn as evidence of this arm, unless its caller chose the arm or its episode failed before."""
        if place.named:
            return
        if failed:
            if not self._episodes.fails_first(place.opening):
                self.metrics.apart["act", "again"].inc()
                return
            self.metrics.failed("act")
        self.metrics.observe["act"](seconds)

    def _session(self, place: Place, request: chat_request.ChatRequest, *, touched: bool) -> open_chat.Session:
        result = self._sessions.find(place.opening.episode_id)
        if result is None:
            result = self._sessions.open[place.opening.episode_id] = open_chat.Session(
                place.opening.episode_id,
                place.opening.revision,
                task=(request.metadata or {}).get("task", ""),
                evidence=not place.named,
                named=place.named,
                # Its history has a person's words: nothing that follows is learned from.
                private=touched,
                # A gateway that forwards has opened it for this very request.
                joined=not place.is_new and not place.url and bool(has_answers(request)),
            )
        if request.metadata:
            if len(result.metadata | request.metadata) > MOST_METADATA:
                text = f"metadata: the conversation would have more than {MOST_METADATA} keys in all: leave some out"
                raise ApiError(400, text, param="metadata", code="invalid_value")
            result.metadata.update(request.metadata)
        if request.user:
            result.metadata["user_id"] = request.user
        return result

    async def _stand_in(self, place: Place, request: chat_request.ChatRequest, body: bytes, out: Outgoing) -> None:
        assert self._fallback is not None
        if session := self._sessions.find(place.opening.episode_id):
            session.evidence = False
            if session.row is not None:
                session.row.broken = "fallback"
            self._sessions.recording.mark(session)
        out.headers |= {names.HEADER_REVISION: FALLBACK, names.HEADER_EPISODE: self._arms.helped(place).shown}
        out.headers.pop(names.HEADER_TRAJECTORY, None)
        await self._ask_fallback(request, body, out)

    async def _ask_fallback(self, request: chat_request.ChatRequest, body: bytes, out: Outgoing) -> None:
        assert self._fallback is not None
        try:
            await self._fallback.stand_in(request, orjson.loads(body), out)
        except model_servers.UpstreamDown as error:
            if out.started:
                return
            text = f"neither the model server nor the fallback answers: {error}"
            raise ApiError(503, text, code="upstream", retry_after=1) from error

    async def end(self, episode_id: str, headers: Headers, body: bytes, out: Outgoing) -> None:
        """POST /v1/episodes/{id}/end: the client reports the outcome of the conversation."""
        try:
            ending = EndEpisode.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from None
        place = self._arms.find(episode_id)
        if place.is_new:  # its arm was withdrawn, which ended it
            await self._sessions.end(self._arms.own_id(episode_id), "withdrawn", None, ending.episode_return)
            await out.whole(200, b'{"counted":false}')
            return
        if place.url:
            if names.HEADER_HOP in headers:
                raise ApiError(421, "the conversation belongs to another arm", code="other_arm")
            path = f"/v1/episodes/{episode_id}/end"
            try:
                await self._forwarding.forward(place.url, path, self._onward(place, headers), body, out)
            except Unreachable as error:
                raise ApiError(502, f"the arm of the conversation does not answer: {error}", retry_after=1) from error
            return
        touched = not place.named and self._episodes.touched(place.opening)
        status, success = ("withdrawn", None) if touched or place.helped else (ending.status, ending.success)
        session = await self._sessions.end(place.opening.episode_id, status, success, ending.episode_return)
        counted = False
        alone = not place.helped and (session is None or session.evidence)
        if not place.named and (alone or touched):
            counted = self._episodes.end(place.opening, None, body)
        answer: dict[str, object] = {"counted": counted}
        if session is not None:
            answer["trajectory_id"] = session.trajectory_id
        await out.whole(200, orjson.dumps(answer))

    def models(self) -> list[dict[str, object]]:
        """GET /v1/models: the ModelDeployment is the one model."""
        created = int(self._started)
        own = {"id": self.settings.serving.model_deployment, "object": "model", "owned_by": "learnloop"}
        return [own | {"created": created}]

    _started = time.time()

    async def close(self) -> None:
        """Hand over the conversations under way, and close connections."""
        await self._sessions.leave()
        await self._forwarding.close()
        await self._upstream.close()


def _account(subject: str) -> str:
    """NAMESPACE/NAME of a token's ServiceAccount."""
    return subject.removeprefix("system:serviceaccount:").replace(":", "/", 1)


def has_answers(request: chat_request.ChatRequest) -> bool:
    """Does the history have an answer?"""
    return any(one.role == "assistant" for one in request.messages)


def refused(error: Exception) -> ApiError:
    """The refusal of a request that raised `error`, in OpenAI's shape."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Refusal):
        return of_refusal(error)
    log.error("a request failed", exc_info=error)
    return ApiError(500, "internal error, see the gateway's log", code="internal")
