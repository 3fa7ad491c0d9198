"""What the API server says of a rank before one is made, and what is reckoned with where it says nothing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from learnloop_operator.core.coordination.namespace_room import NamespaceRoom
from learnloop_operator.kube.errors import Forbidden, Invalid, KubeError, Unavailable
from learnloop_operator.reconcile.room_reader import RoomReader
from testing.training.training_builders import world

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "rank"}]}}
ADMITTED = {"containers": [{"name": "rank"}, {"name": "mesh"}]}
QUOTA = 'pods "x-1" is forbidden: exceeded quota: tight, requested: pods=1, used: pods=5, limited: pods=5'


class Server:
    """Answers dry runs."""

    def __init__(self, answer: dict[str, Any] | KubeError) -> None:
        self.answer, self.asked = answer, list[dict[str, Any]]()

    async def admitted(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(manifest)
        if isinstance(self.answer, KubeError):
            raise self.answer
        return {**manifest, "spec": self.answer}


async def test_a_rank_is_what_the_api_server_would_make_of_it_and_is_asked_for_once_a_minute() -> None:
    server, seen = Server(ADMITTED), world(room=NamespaceRoom())
    reader = RoomReader(server)  # type: ignore[arg-type]
    for _ in range(3):
        assert (await reader.admitted(seen, TEMPLATE)).admitted_rank == ADMITTED
    assert len(server.asked) == 1
    assert server.asked[0]["metadata"]["labels"] == {"a": "b"}, "by them webhooks choose"
    await reader.admitted(seen, {**TEMPLATE, "metadata": {"labels": {}}})
    await reader.admitted(replace(seen, now=seen.now + timedelta(seconds=61)), {**TEMPLATE, "metadata": {"labels": {}}})
    assert len(server.asked) == 3


async def test_without_a_quota_nothing_is_asked() -> None:
    server = Server(ADMITTED)
    assert (await RoomReader(server).admitted(world(), TEMPLATE)).admitted_rank is None  # type: ignore[arg-type]
    assert not server.asked


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Forbidden(QUOTA, status=403), "the API server takes no rank: exceeded quota: tight, requested: pods=1"),
        (Forbidden('pods is forbidden: User "x" cannot create resource "pods"', status=403), ""),
        (Invalid("admission webhook inject.example.com does not support dry run", status=400), ""),
        (Unavailable("no answer"), ""),
    ],
)
async def test_a_refusal_counts_only_where_a_quota_refuses(error: KubeError, told: str) -> None:
    seen = await RoomReader(Server(error)).admitted(world(room=NamespaceRoom()), TEMPLATE)  # type: ignore[arg-type]
    assert seen.admitted_rank is None
    assert seen.room is not None
    assert seen.room.refused.startswith(told)
    assert bool(seen.room.refused) == bool(told)
