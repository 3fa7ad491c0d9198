"""Names of a tenant's durable consumers, and of the subjects in which it and JetStream speak of them.

A tenant uses JetStream's API in the domain that is called like its namespace (`$JS.<namespace>.API.…`), as stock NATS
clients do when they are told a domain. Nothing but the data plane hears that. Acknowledgements go to
`$JS.<namespace>.ACK.…`: the server lets nobody but JetStream itself have answers sent to `$JS.ACK.…`. So what clients
read there of a message stands in its headers.
"""

import re
from dataclasses import dataclass

from learnloop_api import names
from learnloop_dataplane.nats.streams import REWARDS, TRAINING
from learnloop_dataplane.nats.subjects import valid_namespace

READABLE = {
    REWARDS: (names.SUBJECT_REWARD,),
    TRAINING: (names.SUBJECT_TRAINING_STATUS, names.SUBJECT_MODEL_DEPLOYED),
}
"""By stream, prefixes of subjects of which a tenant may read those of its own namespace."""
PREFIX = "tenant_"
"""Of the names that tenants' consumers have in JetStream; the data plane's own have no such name."""
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?")
_NUMBERS = 5  # delivered, stream sequence, consumer sequence, time, pending


@dataclass(frozen=True)
class ConsumerGroup:
    """One durable consumer of one namespace: all programs that pull from it share its messages.

    Attributes:
        namespace: a Kubernetes namespace.
        stream: a key of READABLE.
        name: as the tenant says it.
    """

    namespace: str
    stream: str
    name: str

    @property
    def consumer(self) -> str:
        """Its name in JetStream. Neither namespaces nor names of groups have a `_`, so no two groups share one."""
        return f"{prefix_of(self.namespace)}{self.name}"


def prefix_of(namespace: str) -> str:
    """How the names of this namespace's consumers begin in JetStream."""
    return f"{PREFIX}{namespace}_"


def api_prefix(namespace: str) -> str:
    """Where a tenant asks for consumers: JetStream's API in the namespace's domain."""
    return f"$JS.{namespace}.API.CONSUMER"


def ack_prefix(namespace: str) -> str:
    """Where a tenant acknowledges."""
    return f"$JS.{namespace}.ACK"


def valid_group(name: str) -> bool:
    """May a group be called this? Up to 48 lower-case letters, digits and hyphens."""
    return _GROUP.fullmatch(name) is not None


def numbers_of(group: ConsumerGroup, reply: str) -> list[str] | None:
    """What JetStream says of a message in the subject where it wants it acknowledged.

    Returns:
        How often it was delivered, its number in the stream and of the deliveries, nanoseconds since 1970, and how many
        messages wait. None: this is no acknowledgement of the group's.
    """
    begin = f"$JS.ACK.{group.stream}.{group.consumer}."
    numbers = reply.removeprefix(begin).split(".")
    return numbers if reply.startswith(begin) and _numeric(numbers) else None


def tenants_ack(group: ConsumerGroup, numbers: list[str]) -> str:
    """The subject at which the tenant acknowledges."""
    return ".".join((ack_prefix(group.namespace), group.stream, group.name, *numbers))


def told_of(group: ConsumerGroup, subject: str, numbers: list[str]) -> dict[str, str]:
    """Headers of a message that is passed on. A client reads all this from JetStream's own subjects elsewhere."""
    return {
        "Nats-Subject": subject,
        "Nats-Stream": group.stream,
        "Nats-Num-Delivered": numbers[0],
        "Nats-Sequence": numbers[1],
        "Nats-Num-Pending": numbers[4],
    }


def streams_ack(subject: str) -> tuple[ConsumerGroup, str] | None:
    """The group of a tenant's acknowledgement, and the subject at which JetStream waits for it.

    Whatever a tenant writes here acknowledges at most messages of its own groups: its token may publish for its own
    namespace alone, and all but the numbers is made anew.
    """
    tokens = subject.split(".")
    if len(tokens) != 5 + _NUMBERS or tokens[0] != "$JS" or tokens[2] != "ACK":
        return None
    group, numbers = ConsumerGroup(tokens[1], tokens[3], tokens[4]), tokens[5:]
    if not (valid_namespace(group.namespace) and group.stream in READABLE and valid_group(group.name)):
        return None
    return (group, ".".join(("$JS.ACK", group.stream, group.consumer, *numbers))) if _numeric(numbers) else None


def _numeric(tokens: list[str]) -> bool:
    return len(tokens) == _NUMBERS and all(token.isascii() and token.isdigit() and len(token) <= 20 for token in tokens)
