"""Messages that cannot be sent, were settled on their way, or are due much later."""

import json
from collections.abc import Callable
from os import getpid

import pytest

from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.notifications import webhook_outbox
from learnloop_dataplane.notifications.daily_reports import Approvals
from learnloop_dataplane.notifications.webhook_outbox import NotDelivered, Notifications, Webhook

from ..conftest import running, settings

HOUR = 3600.0


class Sender:
    """Stands for the receiver: `does` decides what happens to each message."""

    def __init__(self, does: Callable) -> None:
        self.does, self.sent = does, list[str]()

    async def send(self, event) -> None:
        self.sent.append(event["id"])
        outcome = self.does(event)
        if outcome is not None:
            await outcome

    async def close(self) -> None: ...


def notifications(db, does: Callable) -> tuple[Notifications, Sender]:
    made = Notifications(db, Webhook(url="https://hooks.example.org"), "/none", Metrics())
    made._sender = Sender(does)
    return made, made._sender


async def rows(db) -> dict[str, dict]:
    query = "SELECT *, next_at - now() AS pause, created_at - now() AS late FROM notifications"
    async with db.tenant("team-a") as connection:
        return {row["message_id"]: dict(row) for row in await connection.fetch(query)}


async def put(made: Notifications, db, identity: str, event: str = "model.deployed", after: float = 0.0) -> None:
    async with db.tenant("team-a") as connection:
        payload = json.dumps({"model_deployment": "walker"}).encode()
        await made.write(connection, "team-a", event, identity, payload, after=after)


async def test_a_message_that_cannot_be_told_keeps_no_other_one_back_and_says_why(migrated, tmp_path, monkeypatch):
    monkeypatch.setattr(webhook_outbox, "FIRST_PAUSE", HOUR / 2)

    def does(event: dict) -> None:
        if event["id"] == "bad":
            raise KeyError("verdict")
        if event["id"] == "busy":
            raise NotDelivered("it answers with 429")

    async with running(**settings(migrated(f"outbox_{getpid()}"), tmp_path)) as api:
        made, rig = notifications(api.db, does)
        for identity in ("bad", "busy", "good"):
            await put(made, api.db, identity)
        assert await made.run("team-a") == 1
        assert await made.run("team-a") == 0
        stored = await rows(api.db)
    assert sorted(rig.sent) == ["bad", "busy", "good"], "each is left alone for a while"
    assert stored["good"]["delivered_at"]
    assert "KeyError: 'verdict'" in stored["bad"]["problem"]
    assert stored["bad"]["pause"].total_seconds() == pytest.approx(HOUR / 2, abs=300)
    assert stored["busy"]["problem"] == "it answers with 429"


async def test_what_was_answered_while_it_was_on_its_way_is_not_asked_again(migrated, tmp_path):
    async with running(**settings(migrated(f"settled_{getpid()}"), tmp_path)) as api:

        async def answered() -> None:
            await Approvals(api.db, made).settle("team-a", "walker")
            raise NotDelivered("no answer")

        made, _ = notifications(api.db, lambda _: answered())
        await put(made, api.db, "asked", "approval.escalated")
        assert await made.run("team-a") == 0
        row = (await rows(api.db))["asked"]
    assert row["closed_at"]


async def test_what_is_sent_much_later_is_tried_as_long_as_any_other(migrated, tmp_path):
    async with running(**settings(migrated(f"later_{getpid()}"), tmp_path)) as api:
        made, _ = notifications(api.db, lambda _: None)
        await put(made, api.db, "later", "approval.escalated", after=100 * HOUR)
        row = (await rows(api.db))["later"]
    assert row["late"].total_seconds() == pytest.approx(100 * HOUR, abs=300), "three days count from then"
