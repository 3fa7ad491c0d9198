"""Which model serves, as the operator tells it: a record of every change, and an event for each."""

from learnloop_api import names
from learnloop_api.wire.deployment import ModelDeployed
from learnloop_memory.experience.outbox import EventOutbox
from learnloop_memory.store.database import Database

_HISTORY = """
SELECT payload FROM event_outbox WHERE namespace = $1 AND subject = $2 ORDER BY created_at DESC, message_id LIMIT $3
"""


class Deployments:
    """Told by the operator; published as `agent.rl.model.deployed.v1.<namespace>.<model deployment>`."""

    def __init__(self, db: Database, outbox: EventOutbox) -> None:
        self._db = db
        self._outbox = outbox

    async def put(self, namespace: str, event: ModelDeployed) -> bool:
        """Keeps one change; False when it is known. A revision that comes to serve again later is a change anew.

        Raises:
            Unavailable: nothing was written.
        """
        when = event.deployed_at.isoformat()
        message_id = f"{namespace}/deployed/{event.model_deployment}/{event.revision}/{when}"
        async with self._db.tenant(namespace) as connection:
            body = event.model_dump_json().encode()
            return await self._outbox.put(connection, namespace, _subject(namespace, event), message_id, body)

    async def history(self, namespace: str, deployment: str, limit: int) -> list[ModelDeployed]:
        """The newest changes of one ModelDeployment, newest first."""
        subject = f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{deployment}"
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_HISTORY, namespace, subject, limit)
        return [ModelDeployed.model_validate_json(row["payload"]) for row in rows]


def _subject(namespace: str, event: ModelDeployed) -> str:
    return f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{event.model_deployment}"
