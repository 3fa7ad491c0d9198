"""Programs of tenants consume durably by a stock NATS client: what is theirs, in groups, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from learnloop_api import names
from learnloop_dataplane.experience.training_requests import DURABLE
from learnloop_dataplane.nats.consumers import consumer_limits
from learnloop_dataplane.nats.streams import REWARDS, STREAMS, TRAINING
from testing.servers.nats_server import Nats
from testing.servers.tenants_nats import PASSWORD, connected
from testing.servers.token_issuer import Cluster

from ..conftest import Api, eventually

WAIT = 60.0
GROUP = ConsumerConfig(durable_name="billing", ack_wait=2)


@pytest.fixture
async def red(guarded: tuple[Api, Nats], cluster: Cluster) -> AsyncIterator[Client]:
    client = await connected(guarded[1].url, cluster.token("red"), "red", [])
    yield client
    await client.close()


def streams(client: Client, namespace: str = "red") -> JetStreamContext:
    """JetStream as a stock client speaks it in a domain."""
    return client.jetstream(domain=namespace, timeout=WAIT)


async def rewards(api: Api, count: int, namespace: str = "red") -> None:
    for number in range(count):
        body = json.dumps({"namespace": namespace, "number": number}).encode()
        await api.bus.publish(f"{names.SUBJECT_REWARD}.{namespace}.walker", body, f"{namespace}-{number}")


async def refused(work: Any) -> str:
    with pytest.raises(APIError) as caught:
        await work
    return str(caught.value.description)


async def test_a_stock_client_consumes_at_its_own_pace_and_goes_on_where_it_stopped(
    guarded: tuple[Api, Nats], cluster: Cluster
) -> None:
    api, server = guarded
    await rewards(api, 3, "blue")
    await rewards(api, 7)
    first = await connected(server.url, cluster.token("red"), "red", [])
    made = await streams(first).add_consumer(REWARDS, GROUP)
    assert (made.name, made.num_pending) == ("billing", 7)
    subscription = await streams(first).pull_subscribe_bind(durable="billing", stream=REWARDS)
    taken = await subscription.fetch(4, timeout=WAIT)
    for message in taken:
        assert message.headers is not None
        assert message.headers["Nats-Subject"] == f"{names.SUBJECT_REWARD}.red.walker"
        assert message.headers["Nats-Num-Delivered"] == "1"
        await message.ack_sync(timeout=WAIT)
    await first.close()
    second = await connected(server.url, cluster.token("red", "other"), "red", [], account="other")
    again = await streams(second).pull_subscribe_bind(durable="billing", stream=REWARDS)
    rest = await again.fetch(3, timeout=WAIT)
    assert [json.loads(message.data)["number"] for message in [*taken, *rest]] == list(range(7))
    assert {json.loads(message.data)["namespace"] for message in [*taken, *rest]} == {"red"}
    await second.close()


async def test_what_nobody_acknowledges_comes_again_and_a_refusal_at_once(
    guarded: tuple[Api, Nats], red: Client
) -> None:
    api, _ = guarded
    await rewards(api, 2)
    js = streams(red)
    await js.add_consumer(REWARDS, GROUP)
    subscription = await js.pull_subscribe_bind(durable="billing", stream=REWARDS)
    first, second = await subscription.fetch(2, timeout=WAIT)
    await second.nak()
    (again,) = await subscription.fetch(1, timeout=WAIT)
    assert (again.data, again.headers["Nats-Num-Delivered"]) == (second.data, "2")
    await again.term()
    (late,) = await subscription.fetch(1, timeout=WAIT)
    assert (late.data, late.headers["Nats-Num-Delivered"]) == (first.data, "2")
    await late.ack_sync(timeout=WAIT)
    assert (await js.consumer_info(REWARDS, "billing")).num_ack_pending == 0


async def test_programs_of_one_group_share_the_work_and_each_message_has_one_of_them(
    guarded: tuple[Api, Nats], cluster: Cluster
) -> None:
    api, server = guarded
    programs = [await connected(server.url, cluster.token("red", f"p{n}"), "red", [], account=f"p{n}") for n in (1, 2)]
    await streams(programs[0]).add_consumer(REWARDS, ConsumerConfig(durable_name="billing", ack_wait=60))
    await rewards(api, 40)
    taken: list[list[int]] = [[], []]

    async def works(which: int) -> None:
        subscription = await streams(programs[which]).pull_subscribe_bind(durable="billing", stream=REWARDS)
        while sum(map(len, taken)) < 40:
            with suppress(TimeoutError, nats.errors.TimeoutError):
                for message in await subscription.fetch(2, timeout=2):
                    taken[which].append(json.loads(message.data)["number"])
                    await message.ack_sync(timeout=WAIT)

    await asyncio.wait_for(asyncio.gather(works(0), works(1)), WAIT)
    assert sorted(taken[0] + taken[1]) == list(range(40))
    assert min(map(len, taken)) > 0
    for program in programs:
        await program.close()


async def test_deployments_and_runs_are_in_one_stream_and_a_filter_chooses(
    guarded: tuple[Api, Nats], red: Client
) -> None:
    api, _ = guarded
    js = streams(red)
    for number, subject in enumerate((names.SUBJECT_TRAINING_STATUS, names.SUBJECT_MODEL_DEPLOYED)):
        await api.bus.publish(f"{subject}.red.walker", b"{}", f"m{number}")
    wanted = f"{names.SUBJECT_MODEL_DEPLOYED}.red.>"
    chosen = ConsumerConfig(name="deploys", durable_name="deploys", filter_subject=wanted)
    assert (await js.add_consumer(TRAINING, chosen)).num_pending == 1
    assert (await js.add_consumer(TRAINING, ConsumerConfig(durable_name="both"))).num_pending == 2
    new = ConsumerConfig(durable_name="new", deliver_policy=DeliverPolicy.NEW)
    assert (await js.add_consumer(TRAINING, new)).num_pending == 0
    assert [one.name for one in await js.consumers_info(TRAINING)] == ["both", "deploys", "new"]
    assert await js.delete_consumer(TRAINING, "both")
    with pytest.raises(NotFoundError):
        await js.consumer_info(TRAINING, "both")


async def test_an_empty_stream_says_so_by_a_status_in_the_first_line(red: Client) -> None:
    js = streams(red)
    await js.add_consumer(REWARDS, GROUP)
    inbox = red.new_inbox()
    heard = await red.subscribe(inbox)
    await red.publish(f"$JS.red.API.CONSUMER.MSG.NEXT.{REWARDS}.billing", b'{"batch": 1, "no_wait": true}', inbox)
    message = await heard.next_msg(WAIT)
    assert message.headers is not None
    assert message.headers["Status"] == "404"
    assert message.headers["Description"] == "No Messages"
    assert set(message.headers) == {"Status", "Description"}


async def test_a_program_that_starts_again_may_declare_its_group_again(guarded: tuple[Api, Nats], red: Client) -> None:
    api, _ = guarded
    js = streams(red)
    await rewards(api, 3)
    new = GROUP.evolve(deliver_policy=DeliverPolicy.NEW)
    await js.add_consumer(REWARDS, new)
    await rewards(api, 5)
    assert (await js.add_consumer(REWARDS, GROUP.evolve(ack_wait=7))).num_pending == 2
    assert (await js.consumer_info(REWARDS, "billing")).config.ack_wait == 7


async def test_nobody_reaches_groups_of_another_namespace_or_of_the_data_plane(
    guarded: tuple[Api, Nats], cluster: Cluster, red: Client
) -> None:
    api, server = guarded
    await rewards(api, 3, "blue")
    blue = await connected(server.url, cluster.token("blue"), "blue", [])
    await streams(blue, "blue").add_consumer(REWARDS, GROUP)
    js = streams(red)
    with pytest.raises(NotFoundError):
        await js.consumer_info(REWARDS, "billing")
    own = await nats.connect(server.url, user="learnloop", password=PASSWORD)
    before = {stream: sorted(c.name for c in await own.jetstream().consumers_info(stream)) for stream in STREAMS}
    for name in ("tenant_blue_billing", "blue_billing", "..billing", "*", ">", "Billing", "a" * 49):
        for verb in ("INFO", "DELETE", "CREATE"):
            with suppress(nats.errors.Error, NotFoundError):
                answer = await red.request(f"$JS.red.API.CONSUMER.{verb}.{REWARDS}.{name}", b'{"config": {}}', WAIT)
                assert "error" in json.loads(answer.data), (verb, name)
    assert "error" in json.loads(
        (await red.request(f"$JS.red.API.CONSUMER.DELETE.{TRAINING}.{DURABLE}", b"", WAIT)).data
    )
    for stream in ("RL_TRAJECTORIES", "RL_DEAD_LETTERS", "*", "KV_x"):
        assert "is not for tenants" in await refused(js._api_request(f"$JS.red.API.CONSUMER.LIST.{stream}", b"", 60))
    for verb in ("PAUSE", "RESET", "LEADER.STEPDOWN", "UNPIN", "DURABLE.DELETE"):
        told = await refused(js._api_request(f"$JS.red.API.CONSUMER.{verb}.{REWARDS}.billing", b"{}", 60))
        assert "is not offered to tenants" in told
    assert before == {
        stream: sorted(c.name for c in await own.jetstream().consumers_info(stream)) for stream in STREAMS
    }
    assert (await streams(blue, "blue").consumer_info(REWARDS, "billing")).num_pending == 3
    for client in (blue, own):
        await client.close()


async def test_the_server_refuses_a_domain_and_acknowledgements_of_others_and_all_else_of_the_api(
    guarded: tuple[Api, Nats], cluster: Cluster
) -> None:
    _, server = guarded
    errors: list[str] = []
    red = await connected(server.url, cluster.token("red"), "red", errors)
    closed = (
        f"$JS.blue.API.CONSUMER.INFO.{REWARDS}.billing",
        f"$JS.blue.ACK.{REWARDS}.billing.1.1.1.1.1",
        f"$JS.ACK.{REWARDS}.tenant_blue_billing.1.1.1.1.1",
        f"$JS.red.API.STREAM.PURGE.{REWARDS}",
        f"$JS.API.CONSUMER.CREATE.{REWARDS}.x",
        f"$JS.API.CONSUMER.MSG.NEXT.{REWARDS}.tenant_blue_billing",
    )
    for subject in closed:
        await red.publish(subject, b"{}", reply=red.new_inbox())
    for subject in ("$JS.>", "$JS.*.API.CONSUMER.>", "$JS.red.API.CONSUMER.>", "$JS.red.ACK.>"):
        await red.subscribe(subject)
    await red.flush(WAIT)

    async def all_refused() -> bool:
        return len(errors) == len(closed) + 4

    await eventually(all_refused)
    assert all("permissions violation" in error.lower() for error in errors)
    await red.close()


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("deliver_subject", f"{names.SUBJECT_REWARD}.red.walker", "deliver_subject: is not offered"),
        ("filter_subject", f"{names.SUBJECT_REWARD}.blue.>", "is not of this namespace"),
        ("filter_subject", f"{names.SUBJECT_REWARD}.*.walker", "is not of this namespace"),
        ("filter_subject", ">", "is not of this namespace"),
        ("filter_subject", f"{names.SUBJECT_TRAJECTORY}.red.walker", "is not of this namespace"),
        ("filter_subjects", [f"{names.SUBJECT_REWARD}.red.{n}" for n in range(9)], "no list of at most 8"),
        ("ack_policy", "none", "ack_policy: is always explicit"),
        ("ack_wait", 10**8, "between 1 and 3600 s"),
        ("inactive_threshold", 90 * 86_400 * 10**9, "inactive_threshold"),
        ("num_replicas", 5, "num_replicas: is not offered"),
        ("mem_storage", True, "mem_storage: is not offered"),
        ("durable_name", "other", "is not billing"),
        ("opt_start_time", "yesterday", "no time with a zone"),
    ],
)
async def test_a_group_that_asks_for_too_much_is_refused_by_the_fields_name(
    red: Client, field: str, value: Any, told: str
) -> None:
    config = {"durable_name": "billing", "ack_policy": "explicit", field: value}
    if field == "opt_start_time":
        config["deliver_policy"] = "by_start_time"
    body = json.dumps({"stream_name": REWARDS, "config": config}).encode()
    subject = f"$JS.red.API.CONSUMER.CREATE.{REWARDS}.billing"
    assert told in await refused(streams(red)._api_request(subject, body, WAIT))
    with pytest.raises(NotFoundError):
        await streams(red).consumer_info(REWARDS, "billing")


async def test_answers_and_messages_go_to_the_askers_inbox_and_nowhere_else(
    guarded: tuple[Api, Nats], red: Client
) -> None:
    api, server = guarded
    await rewards(api, 3)
    js = streams(red)
    await js.add_consumer(REWARDS, GROUP)
    own = await nats.connect(server.url, user="learnloop", password=PASSWORD)
    tenants = await nats.connect(server.url, user="learnloop-tenants", password=PASSWORD)
    heard = [await client.subscribe(">") for client in (own, tenants)]
    for client in (own, tenants):
        await client.flush(WAIT)
    targets = ("$JS.API.STREAM.PURGE.RL_REWARDS", f"{names.SUBJECT_REWARD}.blue.x", f"{names.nats_inbox('blue')}.x")
    for target in targets:
        await red.publish(f"$JS.red.API.CONSUMER.MSG.NEXT.{REWARDS}.billing", b"1", reply=target)
        await red.publish(f"$JS.red.API.CONSUMER.LIST.{REWARDS}", b"", reply=target)
        await red.publish(f"$JS.red.ACK.{REWARDS}.billing.1.1.1.1.1", b"+ACK", reply=target)
    await red.publish(f"$JS.red.ACK.{REWARDS}.billing.1.1.1.1.1", b'+NXT {"batch": 100}', reply=targets[0])
    assert (await js.consumer_info(REWARDS, "billing")).num_pending == 3, "nothing was given out"
    await red.flush(WAIT)
    for subscription in heard:
        told = [message.subject for message in subscription._pending_queue._queue]
        assert not set(told) & set(targets)
    for client in (own, tenants):
        await client.close()


async def test_a_namespace_has_so_many_groups_and_neighbours_still_have_theirs(
    guarded: tuple[Api, Nats], cluster: Cluster, red: Client
) -> None:
    _, server = guarded
    js = streams(red)
    made = [js.add_consumer(REWARDS, ConsumerConfig(durable_name=f"g{n}")) for n in range(consumer_limits.EACH)]
    for number in range(0, len(made), 4):
        await asyncio.gather(*made[number : number + 4])
    told = await refused(js.add_consumer(TRAINING, ConsumerConfig(durable_name="more")))
    assert "namespace red has 16 durable consumers, and 16 are allowed" in told
    await js.add_consumer(REWARDS, ConsumerConfig(durable_name="g0"))
    blue = await connected(server.url, cluster.token("blue"), "blue", [])
    await streams(blue, "blue").add_consumer(REWARDS, GROUP)
    await blue.close()


async def test_a_flood_of_requests_is_told_so_and_neighbours_are_served(
    guarded: tuple[Api, Nats], cluster: Cluster, red: Client
) -> None:
    api, server = guarded
    await streams(red).add_consumer(REWARDS, GROUP)
    inbox = red.new_inbox()
    told = await red.subscribe(inbox)
    for _ in range(200):
        await red.publish(f"$JS.red.API.CONSUMER.MSG.NEXT.{REWARDS}.billing", b'{"batch": 1000000}', reply=inbox)
    message = await told.next_msg(WAIT)
    assert message.headers is not None
    assert message.headers["Status"] == "409"
    assert "32 requests of namespace red wait" in message.headers["Description"]
    await rewards(api, 1, "blue")
    blue = await connected(server.url, cluster.token("blue"), "blue", [])
    await streams(blue, "blue").add_consumer(REWARDS, GROUP)
    subscription = await streams(blue, "blue").pull_subscribe_bind(durable="billing", stream=REWARDS)
    assert len(await subscription.fetch(1, timeout=WAIT)) == 1
    assert b'relay_refusals_total{namespace="red",why="in_hand"}' in api.plane.shared.metrics.render()
    await blue.close()
