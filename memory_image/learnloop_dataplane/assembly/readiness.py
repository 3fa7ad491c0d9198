"""Whether this process can serve, and what is slower than it should be."""

from learnloop_common.http_server import Drain
from learnloop_dataplane.assembly.memory_parts import MemoryParts
from learnloop_dataplane.assembly.shared_parts import SharedParts
from learnloop_dataplane.assembly.training_parts import TrainingParts
from learnloop_dataplane.errors import Unavailable

MOST_SAID = 500


class Readiness:
    """Asks the stores. `drain`: whether this process has been told to end."""

    def __init__(self, shared: SharedParts, memory: MemoryParts, training: TrainingParts, drain: Drain) -> None:
        self.drain = drain
        self._shared = shared
        self._memory = memory
        self._training = training

    async def problems(self) -> dict[str, str]:
        """Why nothing may be sent here now, by store; empty where PostgreSQL and NATS answer."""
        if self.drain.draining:
            return {"draining": "this process has been told to end; send to another one"}
        db, bus = self._shared.db, self._shared.bus
        found: dict[str, str] = {}
        try:
            await db.ping()
        except Unavailable as error:
            found["postgresql"] = error.message if db.ready.is_set() else db.problem
        if bus:
            try:
                await bus.ping()
            except Unavailable as error:
                found["nats"] = error.message if bus.ready.is_set() else bus.problem
        return found

    def degraded(self) -> dict[str, str]:
        """What is slower, or refuses uploads, or will refuse episodes; no reason to send nothing."""
        found = {
            work: f"the last pass failed ({error}) and is tried again; the log has the whole error"
            for work, error in self._shared.background.failing.items()
        }
        if self._shared.stream_room and self._shared.stream_room.problem:
            found["streams"] = self._shared.stream_room.problem
        if self._training.artifacts.problem:
            found["artifact store"] = self._training.artifacts.problem
        if self._memory.following.problem:
            found["vector store"] = self._memory.following.problem[:MOST_SAID]
        return found
