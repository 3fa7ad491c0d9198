"""Makes, shows and deletes durable consumers for a tenant: answers in the shapes of JetStream's API."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from nats.aio.client import Client
from nats.errors import Error as NatsError

from learnloop_dataplane.nats.consumers import consumer_limits
from learnloop_dataplane.nats.consumers.consumer_limits import TooMuch
from learnloop_dataplane.nats.consumers.consumer_names import PREFIX, READABLE, ConsumerGroup, prefix_of, valid_group

log = logging.getLogger(__name__)
API = "$JS.API.CONSUMER"
SECONDS = 4.0
"""A client waits for 5."""
SHOWN = (
    "type",
    "created",
    "delivered",
    "ack_floor",
    "num_ack_pending",
    "num_redelivered",
    "num_waiting",
    "num_pending",
    "ts",
    "success",
    "error",
)
"""What a tenant is told of a consumer; not where its servers are."""
Order = Callable[[], Any]


@dataclass(frozen=True)
class ConsumerRequest:
    """One request of a tenant's.

    Attributes:
        verb: CREATE, INFO, DELETE, NAMES, LIST or NEXT.
        name: the group's; empty for NAMES and LIST.
    """

    verb: str
    stream: str
    name: str

    @classmethod
    def read(cls, rest: str) -> "ConsumerRequest | None":
        """Of a subject's end, after `$JS.<namespace>.API.CONSUMER.`; None: nothing that is offered."""
        match rest.split("."):
            case ["CREATE", stream, name, *_]:  # what follows is the filter, which the body has as well
                return cls("CREATE", stream, name)
            case ["DURABLE", "CREATE", stream, name]:
                return cls("CREATE", stream, name)
            case ["MSG", "NEXT", stream, name]:
                return cls("NEXT", stream, name)
            case [("INFO" | "DELETE") as verb, stream, name]:
                return cls(verb, stream, name)
            case [("NAMES" | "LIST") as verb, stream]:
                return cls(verb, stream, "")
        return None

    def problem(self) -> str:
        """Why nobody may ask this; empty: it may be asked."""
        if self.stream not in READABLE:
            return f"stream {self.stream[:64]!r} is not for tenants; {' and '.join(READABLE)} are"
        if self.name and not valid_group(self.name):
            return (
                f"consumer name {self.name[:64]!r}: 1 to 48 lower-case letters, digits and hyphens are allowed, "
                "a letter or digit first and last"
            )
        return ""


class Orders:
    """Asks JetStream in the data plane's own account, for what a tenant may have and nothing else."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()

    async def answer(self, own: Client, namespace: str, asked: ConsumerRequest, body: bytes) -> bytes:
        """What the tenant is answered.

        Args:
            own: connected to the account that has the streams.
            asked: is no NEXT, and has no problem.
            body: of the request.
        """
        group = ConsumerGroup(namespace, asked.stream, asked.name)
        try:
            match asked.verb:
                case "CREATE":
                    found = await self._create(own, group, body)
                case "NAMES" | "LIST":
                    found = await _listed(own, namespace, asked)
                case verb:
                    found = _told(group, await _ask(own, f"{verb}.{group.stream}.{group.consumer}"))
        except TooMuch as error:
            return refusal(400, str(error))
        except (NatsError, TimeoutError, OSError) as error:
            log.info("NATS: %s of a consumer of %s failed: %s", asked.verb, namespace, error)
            return refusal(503, "JetStream does not answer the data plane; ask again")
        return orjson.dumps(found)

    async def _create(self, own: Client, group: ConsumerGroup, body: bytes) -> dict[str, Any]:
        try:
            request = orjson.loads(body)
            asked, action = request["config"], request.get("action") or ""
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TooMuch("the request is no JSON object with a field config") from None
        if not isinstance(asked, dict) or action not in ("", "create", "update"):
            raise TooMuch("config: is no object, or action is none of create and update")
        config = consumer_limits.consumer(group, asked)
        async with self._making:  # else two at once would both see room for one
            there = await _ask(own, f"INFO.{group.stream}.{group.consumer}")
            if "config" in there:
                # The beginning is said once; a program that starts again says all of it again.
                begin = ("deliver_policy", "opt_start_time")
                config = {key: value for key, value in config.items() if key not in begin}
                config |= {key: there["config"][key] for key in begin if key in there["config"]}
                action = "" if action == "create" else action
            else:
                await _room(own, group.namespace)
            order = {"stream_name": group.stream, "config": config, "action": action}
            made = await _ask(own, f"CREATE.{group.stream}.{group.consumer}", order)
        return _told(group, made)


def refusal(code: int, sentence: str) -> bytes:
    """An answer of JetStream's API that says no."""
    return orjson.dumps(
        {"type": "io.nats.jetstream.api.v1.error", "error": {"code": code, "err_code": 0, "description": sentence}}
    )


async def _ask(own: Client, order: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = await own.request(f"{API}.{order}", orjson.dumps(body) if body else b"", timeout=SECONDS)
    found = orjson.loads(answer.data)
    return found if isinstance(found, dict) else {}


async def _consumers(own: Client, stream: str) -> list[str]:
    found: list[str] = []
    while True:
        page = await _ask(own, f"NAMES.{stream}", {"offset": len(found)})
        names = page.get("consumers") or []
        found += names
        if not names or len(found) >= int(page.get("total") or 0):
            return found


async def _room(own: Client, namespace: str) -> None:
    there = [name for stream in READABLE for name in await _consumers(own, stream) if name.startswith(PREFIX)]
    mine = sum(name.startswith(prefix_of(namespace)) for name in there)
    if mine >= consumer_limits.EACH:
        raise TooMuch(
            f"namespace {namespace} has {mine} durable consumers, and {consumer_limits.EACH} are allowed; "
            "delete one, or use one of them together"
        )
    if len(there) >= consumer_limits.ALL:
        raise TooMuch(f"all namespaces together have {len(there)} durable consumers, and no more are made")


async def _listed(own: Client, namespace: str, asked: ConsumerRequest) -> dict[str, Any]:
    mine = [name for name in await _consumers(own, asked.stream) if name.startswith(prefix_of(namespace))]
    groups = [ConsumerGroup(namespace, asked.stream, name.removeprefix(prefix_of(namespace))) for name in mine]
    page: dict[str, Any] = {"total": len(groups), "offset": 0, "limit": max(len(groups), 1)}
    if asked.verb == "NAMES":
        return page | {
            "type": "io.nats.jetstream.api.v1.consumer_names_response",
            "consumers": [group.name for group in groups],
        }
    shown = [_told(group, await _ask(own, f"INFO.{group.stream}.{group.consumer}")) for group in groups]
    return page | {
        "type": "io.nats.jetstream.api.v1.consumer_list_response",
        "consumers": [one for one in shown if "config" in one],
    }


def _told(group: ConsumerGroup, found: dict[str, Any]) -> dict[str, Any]:
    told = {key: found[key] for key in SHOWN if key in found}
    if "config" in found:
        told |= {"stream_name": group.stream, "name": group.name}
        told["config"] = found["config"] | {"durable_name": group.name, "name": group.name}
    return told
