"""A real NATS server asks the data plane who may publish what: a token speaks for its namespace and no other."""

import asyncio
import base64
import json
import time
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg

from learnloop_api import names
from learnloop_dataplane.nats import auth_callout
from learnloop_dataplane.nats.auth_callout import read_request
from testing.servers.nats_server import START_SECONDS, Nats
from testing.servers.tenants_nats import connected
from testing.servers.token_issuer import Cluster

from ..conftest import Api, eventually, register, trajectory


@pytest.mark.parametrize("account", ["default", "team.cart-1"])
async def test_a_token_publishes_for_its_namespace_and_is_acknowledged(guarded, cluster, account):
    api, server = guarded
    token = cluster.token("red", account)
    headers = {"Authorization": f"Bearer {token}"}
    await register(api, cluster, "red", "cart")
    client = await connected(server.url, token, "red", [], account=account)
    body = json.dumps(trajectory(f"of-{account}", "cart")).encode()
    subject = f"{names.SUBJECT_TRAJECTORY}.red.cart"
    assert (await client.jetstream(timeout=START_SECONDS).publish(subject, body)).stream == "RL_TRAJECTORIES"
    await client.close()

    async def stored() -> bool:
        answer = await api.client.get("/api/v1/agents/cart/stats", headers=headers)
        return answer.status_code == 200 and answer.json()["trajectories"] == 1

    await eventually(stored)


async def test_a_neighbour_in_the_namespace_cannot_listen_to_what_another_account_is_answered(guarded, cluster):
    _, server = guarded
    errors: list[str] = []
    neighbour = await connected(server.url, cluster.token("red", "a"), "red", errors, account="a")
    others = [names.nats_inbox("red", account) for account in ("default", "a.b", "a-b")]
    everybody = names.nats_inbox("red")
    closed = [*(f"{inbox}.>" for inbox in others), f"{everybody}.>", f"{everybody}.*.>", f"{everybody}.*.*.*"]
    messages: list[Msg] = []

    async def listens(message: Msg) -> None:
        messages.append(message)

    for subject in closed:
        await neighbour.subscribe(subject, cb=listens)
    own = await neighbour.subscribe(f"{names.nats_inbox('red', 'a')}.>")
    await neighbour.flush(90)

    await eventually(lambda: len(errors) == len(closed))
    assert all("permissions violation for subscription" in error.lower() for error in errors)
    for account in ("default", "a.b"):
        client = await connected(server.url, cluster.token("red", account), "red", [], account=account)
        body = json.dumps(trajectory(f"of-{account}", "a")).encode()
        assert (await client.jetstream(timeout=START_SECONDS).publish(f"{names.SUBJECT_TRAJECTORY}.red.a", body)).stream
        await client.close()
    await neighbour.flush(90)
    assert messages == []
    assert own.pending_msgs == 0
    await neighbour.close()


def test_each_service_account_has_one_inbox_and_no_two_share_it() -> None:
    accounts = ("a", "a.b", "a-b", "a.b.c", "ab")
    inboxes = {names.nats_inbox(namespace, account) for namespace in ("red", "red-a") for account in accounts}
    assert len(inboxes) == 2 * len(accounts)
    assert {inbox.count(".") for inbox in inboxes} == {1}, "one token each: none contains another"


async def test_nobody_publishes_or_reads_what_is_not_theirs(guarded: tuple[Api, Nats], cluster: Cluster) -> None:
    _, server = guarded
    errors: list[str] = []
    client = await connected(server.url, cluster.token("red"), "red", errors)
    publish = (
        f"{names.SUBJECT_TRAJECTORY}.blue.a",
        f"{names.SUBJECT_REWARD}.red.a",  # rewards are given, not claimed
        f"{names.SUBJECT_MODEL_DEPLOYED}.red.a",
        "$JS.API.STREAM.PURGE.RL_TRAJECTORIES",
        "$JS.API.STREAM.DELETE.RL_TRAJECTORIES",
        "$SYS.REQ.USER.AUTH",
        f"{names.nats_inbox('blue', 'default')}.x",
    )
    for subject in publish:
        await client.publish(subject, b"{}")
    read = (">", f"{names.SUBJECT_REWARD}.>", f"{names.SUBJECT_REWARD}.blue.>", "_INBOX.>", "$SYS.REQ.USER.AUTH")
    for subject in read:
        await client.subscribe(subject)
    await client.flush(20)

    await eventually(lambda: len(errors) == len(publish) + len(read))
    assert all("permissions violation" in error.lower() for error in errors)
    allowed = await client.subscribe(f"{names.SUBJECT_REWARD}.red.>")
    await client.flush(20)
    assert len(errors) == len(publish) + len(read)
    await allowed.unsubscribe()
    await client.close()


@pytest.mark.parametrize("wrong", ["", "not-a-token", "expired", "other audience", "account that is a wildcard"])
async def test_without_a_valid_token_there_is_no_connection(guarded, cluster, wrong):
    _, server = guarded
    tokens = {
        "expired": {"exp": int(time.time()) - 600},
        "other audience": {"aud": ["https://elsewhere"]},
        "account that is a wildcard": {"sub": "system:serviceaccount:red:*"},
    }
    token = cluster.token(**tokens[wrong]) if wrong in tokens else wrong
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await nats.connect(server.url, token=token, allow_reconnect=False, connect_timeout=20, max_reconnect_attempts=1)


async def test_the_data_plane_answers_again_after_nats_came_back(guarded: tuple[Api, Nats], cluster: Cluster) -> None:
    _, server = guarded
    server.kill()
    await asyncio.to_thread(server.start)

    async def works() -> bool:
        try:
            client = await connected(server.url, cluster.token("red"), "red", [])
            body = json.dumps(trajectory("again", "a")).encode()
            ack = await client.jetstream(timeout=5).publish(f"{names.SUBJECT_TRAJECTORY}.red.a", body)
            await client.close()
        except (nats.errors.Error, OSError, TimeoutError):
            return False
        return ack.stream == "RL_TRAJECTORIES"

    await eventually(works)


@pytest.mark.parametrize(
    "data", [b"", b"a.b", b"a.e30.c", b"a." + base64.b64encode(b'{"nats": 3}') + b".c", b"x" * 70_000]
)
def test_a_question_that_is_none_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|Error"):
        read_request(data)


def test_a_key_that_is_none_is_refused_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key").write_text("short")
    assert auth_callout.main([str(tmp_path / "key"), str(tmp_path / "out")]) == 2
    assert "32 random bytes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("audience", [names.RUN_AUDIENCE, names.GATE_AUDIENCE])
async def test_the_token_of_a_rank_or_a_suite_connects_to_nothing(guarded, cluster, audience):
    _, server = guarded
    errors: list[str] = []

    async def on_error(error: Exception) -> None:
        errors.append(str(error).lower())

    with pytest.raises((nats.errors.Error, OSError)):
        await nats.connect(
            server.url,
            token=cluster.token("red", aud=[audience]),
            allow_reconnect=False,
            max_reconnect_attempts=1,
            connect_timeout=START_SECONDS,
            error_cb=on_error,
        )
    assert any("authorization" in error for error in errors), errors
