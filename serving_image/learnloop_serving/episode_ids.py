"""Episode ids that say who opened them: nobody but a policy server of the ModelDeployment can make one.

    REVISION.tTIME.rRANDOM.mMARK      e.g. 1a2b3c4d.t6921a0c4.r0f1e2d3c4b5a69788796a5b4.m<32 digits>

All hexadecimal; TIME is the second of the opening (Unix), by the API server's clock. The last eight digits of RANDOM
are the tag of the agent (wire.routing.agent_tag), by which a person's override finds the episodes of one agent. The
letters part the digits, so that no chance makes a telephone or card number of them, which redaction would take out. For
everybody else an id is opaque.
"""

import re
import secrets
from dataclasses import dataclass

from learnloop_api.wire.routing import agent_tag
from learnloop_common.cluster_clock import ClusterClock
from learnloop_serving.arms.server_seal import MARK_DIGITS, Seal

PURPOSE = b"episode"
_SEALED = re.compile(
    rf"(([0-9a-f]{{8}})\.t([0-9a-f]{{8}})\.r[0-9a-f]{{16}}([0-9a-f]{{8}}))\.m([0-9a-f]{{{MARK_DIGITS}}})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Opening:
    """What an id says of its episode: the arm that owns it, when it was opened (Unix, seconds) and its agent's tag."""

    episode_id: str
    revision: str = ""
    at: int = 0
    tag: str = ""


class EpisodeIds:
    """Makes and reads the ids of one ModelDeployment."""

    def __init__(self, model_deployment: str, seal: Seal, clock: ClusterClock | None = None) -> None:
        self._clock = clock or ClusterClock()
        self._purpose = b"%b\0%b" % (PURPOSE, model_deployment.encode())
        self._seal = seal

    def make(self, revision: str, agent: str | None = None) -> str:
        """The id of an episode of `agent` that is opened now and belongs to the arm `revision`."""
        said = f"{revision}.t{int(self._clock.now()):08x}.r{secrets.token_hex(8)}{agent_tag(agent)}"
        return f"{said}.m{self._seal.mark(self._purpose, said.encode())}"

    def again(self, episode_id: str) -> str:
        """The id of the same episode among these ids; `episode_id` has a mark of others."""
        said = episode_id.rpartition(".m")[0]
        return f"{said}.m{self._seal.mark(self._purpose, said.encode())}"

    def read(self, episode_id: str) -> Opening | None:
        """What the id says; None when no server of this ModelDeployment gave it out."""
        found = _SEALED.fullmatch(episode_id)
        if found is None:
            return None
        said, revision, at, tag, mark = found.groups()
        if not self._seal.holds(self._purpose, said.encode(), mark):
            return None
        return Opening(episode_id, revision, int(at, 16), tag)
