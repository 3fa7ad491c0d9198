"""The arm of a request: the one that its episode belongs to, as everywhere in learnloop."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import aiohttp

from learnloop_api import names
from learnloop_api.wire.language import Usage
from learnloop_api.wire.routing import Arm, OpenEpisode, Override, agent_tag
from learnloop_gateway import chat_request, model_servers, replies
from learnloop_serving import arm_choice, episode_ids, routing_table_in_force
from learnloop_serving.episodes import Episodes


@dataclass(frozen=True, slots=True)
class Place:
    """Arm and server of a conversation.

    Attributes:
        opening: of its episode.
        url: of the arm's gateways; "": this one.
        named: the caller named the arm: nothing of it is evidence, and nothing is recorded.
        is_new: it was opened for this request.
        continues: the episode whose arm was withdrawn.
        helped: its id since another arm or the fallback has answered in it, so that it counts for no arm; "": none has.
            The id carries this because the next request may reach another gateway.
    """

    opening: episode_ids.Opening
    url: str
    named: bool = False
    is_new: bool = False
    continues: str = ""
    helped: str = ""

    @property
    def shown(self) -> str:
        """The id that the client gets."""
        return self.helped or self.opening.episode_id


class Arms:
    """The arms of one ModelDeployment, seen from the gateway of one of them."""

    def __init__(
        self,
        model_deployment: str,
        revision: str,
        episodes: Episodes,
        routing: routing_table_in_force.RoutingState,
        seal: episode_ids.Seal,
        agent: str = "",
    ) -> None:
        """`agent`: the LearningAgent that the conversations belong to; "": none."""
        self._revision, self._episodes, self._routing = revision, episodes, routing
        self._requests = {
            stable: OpenEpisode(agent=agent or None, stable_only=stable).model_dump_json().encode()
            for stable in (False, True)
        }
        self._named = episode_ids.EpisodeIds(f"{model_deployment}\0pinned", seal)
        self._helped = episode_ids.EpisodeIds(f"{model_deployment}\0helped", seal)

    def open(self, *, stable_only: bool = False, continues: str = "") -> Place:
        """Draw an arm for a new conversation; raises Refusal 403, 409, 503. One that continues another arm's is not
        counted as opened until `begun`: it may never be evidence."""
        opened = self._episodes.open(self._requests[stable_only], counted=not continues)
        opening = self._episodes.ids.read(opened.episode_id)
        assert opening is not None
        return Place(opening, self._url(opened.revision), is_new=True, continues=continues)

    def begun(self, place: Place) -> None:
        """Count a conversation that continues another arm's, which had not answered in it, as opened."""
        self._episodes.count_opened(place.opening.revision)

    def named_arm(self, revision: str) -> Place:
        """A conversation with the arm that the caller names; raises ApiError 404."""
        if self._arm(revision) is None and revision != self._revision:
            raise replies.ApiError(
                404, f"x-learnloop-arm: {revision[:80]!r} is not an arm of this ModelDeployment", code="no_arm"
            )
        opening = self._named.read(self._named.make(revision))
        assert opening is not None
        return Place(opening, self._url(revision), named=True, is_new=True)

    def find(self, episode_id: str) -> Place:
        """Find a conversation's arm; if that was withdrawn, the stable arm continues in another episode.

        Raises:
            ApiError: 404, no gateway of this ModelDeployment opened it.
            Refusal: 503, no arm takes it.
        """
        own = self.own_id(episode_id)
        opening = self._episodes.ids.read(own)
        if opening is not None:
            if self._serves(opening.revision):
                return Place(opening, self._url(opening.revision), helped="" if own == episode_id else episode_id)
            return self.open(stable_only=True, continues=opening.episode_id)
        named = self._named.read(episode_id)
        if named is None:
            text = f"x-learnloop-episode: {episode_id[:128]!r} was opened by no gateway of this ModelDeployment"
            raise replies.ApiError(404, f"{text}: leave it out of the first request", code="unknown_episode")
        return Place(named, self._url(named.revision), named=True)

    def own_id(self, episode_id: str) -> str:
        """The id that the conversation was opened with."""
        result = self._helped.read(episode_id)
        return self._episodes.ids.again(episode_id) if result is not None else episode_id

    def helped(self, place: Place) -> Place:
        """The same conversation, in which another than its arm has answered."""
        return replace(place, helped=self._helped.again(place.opening.episode_id))

    def stable_elsewhere(self, revision: str) -> bool:
        """Is there a stable arm other than `revision`?"""
        table = self._routing.table
        stable = arm_choice.stable_arm(table) if table is not None else None
        return stable is not None and stable.revision != revision

    def override(self, agent: str) -> Override | None:
        """The override in force for `agent`."""
        return self._routing.overrides.now(agent_tag(agent))

    def touched(self, episode_id: str) -> bool:
        """Has a person decided at any moment since this episode was opened?"""
        opening = self._episodes.ids.read(episode_id)
        return opening is not None and self._episodes.touched(opening)

    def _serves(self, revision: str) -> bool:
        return self._routing.lists(revision) and not (revision == self._revision and self._episodes.shadow.on)

    def _arm(self, revision: str) -> Arm | None:
        table = self._routing.table
        return next((arm for arm in table.arms if arm.revision == revision), None) if table is not None else None

    def _url(self, revision: str) -> str:
        if revision == self._revision:
            return ""
        arm = self._arm(revision)
        return arm.url if arm is not None else ""


NOTHING = Usage(prompt_tokens=0, completion_tokens=0)


def stopped(override: Override) -> replies.ApiError:
    """The refusal of a stop: 403, which OpenAI's clients do not retry."""
    return replies.ApiError(403, f"this agent gets no answers, as ordered {override.sentence()}", code="stopped")


async def say_fixed(override: Override, model: str, request: chat_request.ChatRequest, out: replies.Outgoing) -> None:
    """Send the words that a person has ordered, whole or as a stream.

    Raises:
        ApiError: 403, the order is an action and has no words.
    """
    if override.answer is None:
        raise stopped(override)
    out.headers[names.HEADER_OVERRIDE] = "fixed"
    reply = replies.ChatReply(f"override-{uuid.uuid4().hex[:24]}", model, request.counts)
    if not request.stream:
        await out.whole(200, reply.whole(override.answer, (), "stop", NOTHING))
        return
    await out.begin()
    await out.piece(reply.opening() + reply.piece(override.answer) + reply.end("stop"))
    await out.end(reply.counted(NOTHING) + replies.DONE)


BACK = (
    names.HEADER_EPISODE,
    names.HEADER_TRAJECTORY,
    names.HEADER_REVISION,
    "retry-after",
)
"""Headers of the other gateway that the client gets, in addition to its content-type."""


class Unreachable(Exception):
    """No gateway of the arm answered."""


class Forwarding:
    """Connections to the gateways of the other arms."""

    def __init__(
        self, first_seconds: float = model_servers.FIRST_SECONDS, seconds: float = model_servers.SECONDS
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=2.0, sock_read=first_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def forward(
        self, url: str, path: str, headers: Mapping[str, str], body: bytes, out: replies.Outgoing
    ) -> None:
        """Raises Unreachable if no answer began; an answer that breaks off is cut off for the client too."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=model_servers.fresh_connections(), auto_decompress=False)
        try:
            async with self._session.post(
                f"{url}{path}", data=body, headers=headers, allow_redirects=False, timeout=self._timeout
            ) as answer:
                out.headers |= {name: answer.headers[name] for name in BACK if name in answer.headers}
                kind = answer.headers.get("content-type", "application/json")
                if answer.content_type != "text/event-stream":
                    await out.whole(answer.status, await answer.read(), kind)
                    return
                await out.begin(kind, answer.status)
                async for part in answer.content.iter_any():
                    await out.piece(part)
                await out.end()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not out.started:
                raise Unreachable(f"{url}: {str(error) or type(error).__name__}") from error
            raise

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
