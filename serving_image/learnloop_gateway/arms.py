"""Which arm answers a request: the one that its episode belongs to, as everywhere in learnloop."""

from dataclasses import dataclass, replace

from learnloop_api.wire.routing import Arm, OpenEpisode, Override, agent_tag
from learnloop_gateway.openai_api.errors import ApiError
from learnloop_serving.arms.arm_draw import stable_arm
from learnloop_serving.arms.routing_table import RoutingState
from learnloop_serving.arms.server_seal import Seal
from learnloop_serving.episode_ids import EpisodeIds, Opening
from learnloop_serving.episodes import Episodes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation is held.

    Attributes:
        opening: of its episode; for one that was pinned there it proves nothing.
        url: of the arm's gateways; "": this one.
        pinned: the caller named the arm: nothing of it is evidence, and nothing is recorded.
        is_new: it was opened for this request.
        continues: the episode whose arm was taken away.
        helped: its id since somebody else than its arm has answered in it, which makes it no arm's evidence; "": nobody
            has. The id itself says so, for another gateway may hear of the conversation next.
    """

    opening: Opening
    url: str
    pinned: bool = False
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
        routing: RoutingState,
        seal: Seal,
        agent: str = "",
    ) -> None:
        """`agent`: whose conversations they are; "": nobody's."""
        self._revision, self._episodes, self._routing = revision, episodes, routing
        self._requests = {
            stable: OpenEpisode(agent=agent or None, stable_only=stable).model_dump_json().encode()
            for stable in (False, True)
        }
        self._pinned = EpisodeIds(f"{model_deployment}\0pinned", seal)
        self._helped = EpisodeIds(f"{model_deployment}\0helped", seal)

    def open(self, *, stable_only: bool = False, continues: str = "") -> Place:
        """Draw an arm for a new conversation; raises Refusal 403, 409, 503. One that goes on from another arm's may
        never be evidence, so it is not counted as opened yet: see `begun`."""
        opened = self._episodes.open(self._requests[stable_only], counted=not continues)
        opening = self._episodes.ids.read(opened.episode_id)
        assert opening is not None
        return Place(opening, self._url(opened.revision), is_new=True, continues=continues)

    def begun(self, place: Place) -> None:
        """A conversation goes on from another arm's that had not answered in it: the new arm's is a whole one."""
        self._episodes.count_opened(place.opening.revision)

    def pin(self, revision: str) -> Place:
        """A conversation with the arm that the caller names; raises ApiError 404."""
        if self._arm(revision) is None and revision != self._revision:
            raise ApiError(404, f"x-learnloop-arm: {revision[:80]!r} is no arm of this ModelDeployment", code="no_arm")
        opening = self._pinned.read(self._pinned.make(revision))
        assert opening is not None
        return Place(opening, self._url(revision), pinned=True, is_new=True)

    def find(self, episode_id: str) -> Place:
        """Where a conversation is held; one whose arm was withdrawn goes on with the stable arm.

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
        pinned = self._pinned.read(episode_id)
        if pinned is None:
            told = f"x-learnloop-episode: {episode_id[:128]!r} was opened by no gateway of this ModelDeployment"
            raise ApiError(404, f"{told}: leave it out of the first request", code="unknown_episode")
        return Place(pinned, self._url(pinned.revision), pinned=True)

    def own_id(self, episode_id: str) -> str:
        """The id that the conversation was opened with."""
        found = self._helped.read(episode_id)
        return self._episodes.ids.again(episode_id) if found is not None else episode_id

    def helped(self, place: Place) -> Place:
        """The same conversation, in which somebody else than its arm has answered."""
        return replace(place, helped=self._helped.again(place.opening.episode_id))

    def stable_elsewhere(self, revision: str) -> bool:
        """Is there a stable arm other than `revision`?"""
        table = self._routing.table
        stable = stable_arm(table) if table is not None else None
        return stable is not None and stable.revision != revision

    def override(self, agent: str) -> Override | None:
        """What a person has ordered for `agent` in the model's place."""
        return self._routing.overrides.now(agent_tag(agent))

    def touched(self, episode_id: str) -> bool:
        """Was it a person who decided, at any moment since this episode was opened?"""
        opening = self._episodes.ids.read(episode_id)
        return opening is not None and self._episodes.touched(opening)

    def is_shadow(self) -> bool:
        """This arm answers nobody but those who pin it."""
        return self._episodes.shadow.on

    def _serves(self, revision: str) -> bool:
        return self._routing.lists(revision) and not (revision == self._revision and self.is_shadow())

    def _arm(self, revision: str) -> Arm | None:
        table = self._routing.table
        return next((arm for arm in table.arms if arm.revision == revision), None) if table is not None else None

    def _url(self, revision: str) -> str:
        if revision == self._revision:
            return ""
        arm = self._arm(revision)
        return arm.url if arm is not None else ""
