"""What people say about an agent's work, and their wish to be left out."""

from typing import Any, Literal

from learnloop_common.redaction.redactor import user_as_sent
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.recording.post_outbox import Courier


class People:
    """POST /api/v1/feedback. It does not raise because of the service: an opinion waits until it comes back."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    @property
    def waiting(self) -> int:
        """Opinions that wait for the service to come back."""
        return self._courier.waiting

    async def feedback(
        self,
        trajectory_id: str,
        user_id: str,
        *,
        thumbs: Literal["up", "down"] | None = None,
        stars: int | None = None,
    ) -> bool:
        """One person's opinion of one episode; a later one replaces it. It may come before the episode does.

        Args:
            trajectory_id: of the episode, or of one of its parts: Episode.trajectory_id, EpisodeResult.trajectory_id.
            user_id: the person, as the application knows them; the data plane keeps a pseudonym.
            stars: 1 to 5; 3 is neutral.

        Returns:
            True: it was taken. False: it waits, or was refused.

        Raises:
            LearnloopError: neither thumbs nor stars, both, or stars outside of 1 to 5.
        """
        if (thumbs is None) == (stars is None):
            raise LearnloopError("feedback: give either thumbs or stars")
        if stars is not None and not 1 <= stars <= 5:
            raise LearnloopError(f"feedback: stars is {stars}, must be 1 to 5")
        opinion: dict[str, Any] = {"thumbs": thumbs} if stars is None else {"stars": stars}
        body = {"trajectory_id": trajectory_id, "user_id": user_as_sent(user_id), **opinion}
        return await self._courier.hand_over("/api/v1/feedback", body, f"{trajectory_id} {user_id}")
