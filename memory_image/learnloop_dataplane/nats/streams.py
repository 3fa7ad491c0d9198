"""The three JetStream streams of specification 001 and the one of dead letters, created or updated; never deleted."""

from typing import Any

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StorageType, StoreCompression, StreamConfig
from nats.js.errors import BadRequestError

from learnloop_api import names

TRAJECTORIES = "RL_TRAJECTORIES"
REWARDS = "RL_REWARDS"
TRAINING = "RL_TRAINING"
DEAD_LETTERS = "RL_DEAD_LETTERS"
STREAMS = (TRAJECTORIES, REWARDS, TRAINING, DEAD_LETTERS)
LETTERS_EACH = 1000
"""Dead letters of one kind that a namespace may have; of more its own oldest go, and nobody else's."""
DAY = 86_400.0
DEDUPLICATE_SECONDS = 7200.0
MAX_MESSAGE = 8 * 2**20


def _subjects(*prefixes: str) -> list[str]:
    # The bare subject of the specification is bound as well: what is published there is refused with a reason.
    return [subject for prefix in prefixes for subject in (prefix, f"{prefix}.>")]


def stream_configs(max_bytes: int, replicas: int = 1) -> list[StreamConfig]:
    """Definitions of the streams.

    Args:
        max_bytes: size of RL_TRAJECTORIES; the others get an eighth, at least 16 MiB. Where nobody's reading is known
            the oldest make room; where the data plane reads, what is full refuses what is new, and `stream_capacity`
            takes out what was read: an acknowledged message is never discarded before somebody has it.
        replicas: servers that keep each stream; what is acknowledged, most of them have.
    """
    small = max(max_bytes // 8, 16 * 2**20)
    common: dict[str, Any] = {
        "storage": StorageType.FILE,
        "num_replicas": replicas,
        "duplicate_window": DEDUPLICATE_SECONDS,
        "compression": StoreCompression.S2,
        "allow_direct": True,
        "max_msg_size": MAX_MESSAGE,
    }
    training = _subjects(names.SUBJECT_TRAINING_REQUEST, names.SUBJECT_TRAINING_STATUS, names.SUBJECT_MODEL_DEPLOYED)
    return [
        StreamConfig(
            name=TRAJECTORIES,
            subjects=_subjects(names.SUBJECT_TRAJECTORY),
            max_age=30 * DAY,
            max_bytes=max_bytes,
            discard=DiscardPolicy.NEW,
            **common,
        ),
        StreamConfig(
            name=REWARDS,
            subjects=_subjects(names.SUBJECT_REWARD),
            max_age=30 * DAY,
            max_bytes=small,
            discard=DiscardPolicy.OLD,
            **common,
        ),
        StreamConfig(
            name=TRAINING,
            subjects=training,
            max_age=7 * DAY,
            max_bytes=small,
            discard=DiscardPolicy.NEW,
            **common,
        ),
        StreamConfig(
            name=DEAD_LETTERS,
            subjects=[f"{names.SUBJECT_DEAD_LETTER}.>"],
            max_age=30 * DAY,
            max_bytes=small,
            max_msgs_per_subject=LETTERS_EACH,
            discard=DiscardPolicy.OLD,
            **common,
        ),
    ]


async def ensure_streams(js: JetStreamContext, max_bytes: int, replicas: int = 1) -> None:
    """Creates what is missing and updates what differs.

    Raises:
        nats.errors.Error: the server does not answer, or refuses (e.g. not enough storage).
    """
    for config in stream_configs(max_bytes, replicas):
        try:
            await js.add_stream(config)
        except BadRequestError as error:
            if error.err_code != 10058:  # "stream name already in use with a different configuration"
                raise
            await js.update_stream(config)
