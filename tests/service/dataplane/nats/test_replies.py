"""No tenant makes the NATS server publish for it: whatever reply it names, nothing is sent, purged or forged."""

import json
from contextlib import suppress

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from learnloop_api import names
from learnloop_dataplane.nats.connection import STREAMS, TRAJECTORIES
from testing.servers.nats_server import Nats
from testing.servers.tenants_nats import PASSWORD, connected
from testing.servers.token_issuer import Cluster

from ..conftest import Api, eventually, trajectory

OWN = f"{names.SUBJECT_TRAJECTORY}.red.walker"
REPLIES = [
    *(f"$JS.API.STREAM.{verb}.{stream}" for stream in STREAMS for verb in ("PURGE", "DELETE", "MSG.DELETE")),
    "$JS.API.CONSUMER.DELETE.RL_TRAJECTORIES.learnloop-store",
    f"{names.SUBJECT_TRAJECTORY}.blue.walker",
    f"{names.SUBJECT_TRAINING_REQUEST}.blue.walker",
    f"{names.SUBJECT_REWARD}.blue.walker",
    f"{names.SUBJECT_REWARD}.red.walker",
    f"{names.SUBJECT_TRAINING_STATUS}.red.job",
    f"{names.SUBJECT_MODEL_DEPLOYED}.red.model",
    f"{names.nats_inbox('blue', 'default')}.x",
    f"{names.nats_inbox('blue')}.x",
    "_INBOX_redder.default.x",
    "_INBOX.x",
    "_INBOX_red.*.x",
    "_INBOX_red.default.>",
    "_INBOX_red..x",
    "$SYS.REQ.USER.AUTH",
    "$SYS.REQ.SERVER.PING",
    "$SYS.ACCOUNT.TENANTS.CONNECT",
]
NOT_ENABLED = 10039  # "JetStream not enabled for account"
ORDERS = {"Nats-Rollup": "all", "Nats-Expected-Stream": "RL_REWARDS", "Nats-TTL": "1s", "Nats-Schedule": "@every 1s"}


async def whole(server: Nats) -> tuple[Client, JetStreamContext]:
    """The data plane's own user, to look and to fill with."""
    client = await nats.connect(server.url, user="learnloop", password=PASSWORD)
    return client, client.jetstream()


async def held(js: JetStreamContext) -> dict[str, tuple[int, int]]:
    """Messages of each stream that are there, and the newest one's number. An episode leaves when it is stored."""
    streams = {}
    for stream in STREAMS:
        state = (await js.stream_info(stream)).state
        streams[stream] = (0 if stream == TRAJECTORIES else state.messages, state.last_seq)
    return streams


async def listen_to_all(server: Nats, user: str) -> tuple[Client, list[Msg]]:
    """Hears whatever anybody publishes in the account of this user."""
    messages: list[Msg] = []

    async def hears(message: Msg) -> None:
        messages.append(message)

    client = await nats.connect(server.url, user=user, password=PASSWORD)
    await client.subscribe(">", cb=hears)
    await client.flush()
    return client, messages


async def filled(js: JetStreamContext) -> None:
    for number in range(3):
        await js.publish(f"{names.SUBJECT_REWARD}.blue.walker", b"{}", headers={"Nats-Msg-Id": f"r{number}"})
        await js.publish(f"{names.SUBJECT_TRAINING_STATUS}.blue.job", b"{}", headers={"Nats-Msg-Id": f"s{number}"})


def body(identity: str) -> bytes:
    return json.dumps(trajectory(identity, "walker")).encode()


async def test_whatever_reply_a_tenant_names_no_stream_changes_and_nobody_hears_of_it(guarded, cluster):
    api, server = guarded
    admin, js = await whole(server)
    await filled(js)
    before = await held(js)
    listener, caught = await listen_to_all(server, "learnloop-tenants")
    errors: list[str] = []
    red = await connected(server.url, cluster.token("red"), "red", errors)
    for number, reply in enumerate(REPLIES):
        await red.publish(OWN, body(f"reply-{number}"), reply=reply)
    # A last one with an inbox of its own is taken: all before it have been looked at by then.
    answer = await red.request(OWN, body("honest"), timeout=20)
    assert json.loads(answer.data)["stream"] == "RL_TRAJECTORIES"
    await red.flush(20)
    after = await held(js)
    expected = dict(before)
    expected[TRAJECTORIES] = (0, before[TRAJECTORIES][1] + 1)
    assert after == expected, "the honest one alone is new, and nothing is gone"
    subjects = [one.subject for one in caught if one.subject != OWN and not one.subject.startswith("_INBOX")]
    assert subjects == [], "nothing was published in the tenants' account either"
    foreign = [one.subject for one in caught if one.subject.startswith("_INBOX")]
    assert all(subject.startswith(f"{names.nats_inbox('red', 'default')}.") for subject in foreign)
    assert b'relay_refusals_total{namespace="red",why="reply"}' in api.plane.shared.metrics.render()
    for client in (red, listener, admin):
        await client.close()


async def test_headers_that_are_orders_to_jetstream_or_traces_are_not_passed_on(guarded, cluster):
    _, server = guarded
    admin, js = await whole(server)
    listener, messages = await listen_to_all(server, "learnloop-tenants")
    inside, passed_on = await listen_to_all(server, "learnloop")
    errors: list[str] = []
    red = await connected(server.url, cluster.token("red"), "red", errors)
    answer = await red.request(OWN, body("ordered"), timeout=20, headers=ORDERS)
    assert json.loads(answer.data)["stream"] == "RL_TRAJECTORIES"
    for target in (f"{names.SUBJECT_REWARD}.red.walker", "$JS.API.STREAM.PURGE.RL_TRAJECTORIES", OWN):
        traced = {"Nats-Trace-Dest": target, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        await red.publish(OWN, body(f"traced-{len(target)}"), headers=traced)
    await red.request(OWN, body("last"), timeout=20)
    await red.flush(20)
    episodes = [message for message in passed_on if message.subject == OWN]
    assert episodes
    assert all(set(message.headers or {}) <= {"Nats-Msg-Id"} for message in episodes)
    assert not [message for message in messages if message.subject == f"{names.SUBJECT_REWARD}.red.walker"]
    assert (await js.stream_info("RL_REWARDS")).state.last_seq == 0
    for client in (red, listener, inside, admin):
        await client.close()


async def test_no_order_to_jetstream_does_anything_where_tenants_are(guarded: tuple[Api, Nats]) -> None:
    """Even for the data plane's own user there, which may publish everything; a token may publish none of these."""
    _, server = guarded
    admin, js = await whole(server)
    await filled(js)
    before = await held(js)
    every = await nats.connect(server.url, user="learnloop-tenants", password=PASSWORD)
    purges = [f"$JS.API.STREAM.{verb}.{stream}" for stream in STREAMS for verb in ("INFO", "PURGE", "DELETE")]
    for subject in ("$JS.API.INFO", "$JS.API.STREAM.NAMES", *purges):
        with suppress(nats.errors.NoRespondersError):
            answer = json.loads((await every.request(subject, b"", timeout=20)).data)
            assert answer["error"]["err_code"] == NOT_ENABLED, (subject, answer)
    assert await held(js) == before
    for client in (every, admin):
        await client.close()


async def test_a_tenant_cannot_take_the_id_of_what_the_data_plane_or_a_neighbour_will_publish(guarded, cluster):
    api, server = guarded
    red = await connected(server.url, cluster.token("red"), "red", [])
    blue = await connected(server.url, cluster.token("blue"), "blue", [])
    foreign_ids = ["blue/status/job/1/done", "blue/t-1", "tenant/blue/" + "0" * 64, "", "red/x:policy:1"]
    request = f"{names.SUBJECT_TRAINING_REQUEST}.red.walker"
    for identity in foreign_ids:
        headers = {"Nats-Msg-Id": identity}
        for subject, data in ((OWN, body("squat" + identity.replace("/", "-"))), (request, b"{}")):
            answer = json.loads((await red.request(subject, data, timeout=20, headers=headers)).data)
            assert not answer.get("duplicate"), (subject, identity)
    own = await api.bus.publish(f"{names.SUBJECT_TRAINING_STATUS}.blue.job", b"{}", "blue/status/job/1/done")
    assert not own.duplicate
    answer = await blue.request(
        f"{names.SUBJECT_TRAJECTORY}.blue.walker", body("t-1"), timeout=20, headers={"Nats-Msg-Id": "blue/t-1"}
    )
    assert not json.loads(answer.data).get("duplicate")
    again = await blue.request(
        f"{names.SUBJECT_TRAJECTORY}.blue.walker", body("t-1"), timeout=20, headers={"Nats-Msg-Id": "blue/t-1"}
    )
    assert json.loads(again.data)["duplicate"] is True, "the same one twice is known again"
    for client in (red, blue):
        await client.close()


async def test_tenants_still_read_their_own_rewards_and_no_others(guarded: tuple[Api, Nats], cluster: Cluster) -> None:
    api, server = guarded
    errors: list[str] = []
    red = await connected(server.url, cluster.token("red"), "red", errors)
    own = await red.subscribe(f"{names.SUBJECT_REWARD}.red.>")
    await red.flush(20)
    for namespace in ("blue", "red"):
        await api.bus.publish(f"{names.SUBJECT_REWARD}.{namespace}.walker", b"{}", f"of-{namespace}")
    message = await own.next_msg(timeout=20)
    assert message.subject == f"{names.SUBJECT_REWARD}.red.walker"
    await red.flush(20)
    assert own.pending_msgs == 0
    assert errors == []
    await red.close()


async def test_a_flood_that_waits_for_no_answer_is_told_so_and_neighbours_are_taken(
    guarded: tuple[Api, Nats], cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("learnloop_dataplane.nats.relay.IN_HAND", 0)
    api, server = guarded
    red = await connected(server.url, cluster.token("red"), "red", [])
    answer = json.loads((await red.request(OWN, body("flood"), timeout=20)).data)
    assert answer["error"]["code"] == 429
    assert "namespace red" in answer["error"]["description"]
    monkeypatch.undo()

    async def taken() -> bool:
        message = await red.request(OWN, body("flood"), timeout=20)
        return json.loads(message.data).get("stream") == "RL_TRAJECTORIES"

    await eventually(taken)
    assert b'relay_refusals_total{namespace="red",why="in_hand"}' in api.plane.shared.metrics.render()
    assert "a message of 'red' is refused: 0 messages of namespace red wait" in caplog.text
    await red.close()
