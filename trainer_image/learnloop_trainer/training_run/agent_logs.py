"""The logs that a run reads: a recorded file, or the episodes of one agent or several, with a note for the proof.

A recorded file holds one wire.Trajectory as JSON on each line.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, zip_longest
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from learnloop_api.wire.trajectory import MOST_NAMED, EpisodeSelection, ExperienceRead, LoggedEpisode, Trajectory
from learnloop_environments.errors import ConfigError
from learnloop_trainer import baseline_policy, training_order
from learnloop_trainer.store.run_store import Store, digest, logged

Document = TypeVar("Document", bound=BaseModel)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Log:
    """Logged episodes, newest first, by the agent that logged them; "" logged those of a recorded file."""

    by_agent: Mapping[str, list[LoggedEpisode]]
    selection: EpisodeSelection | None = None

    @property
    def agent(self) -> str | None:
        """The agent that the run trains; None: a recorded file."""
        return next(iter(self.by_agent)) or None

    @property
    def whose(self) -> str:
        return ", ".join(self.by_agent)

    @property
    def episodes(self) -> list[LoggedEpisode]:
        """Those of all agents in turn, so that the first of them are the newest of each."""
        return in_turn(self.by_agent.values())

    def require_each(self, usable: Callable[[LoggedEpisode], bool], what: str) -> None:
        """Raises ConfigError for one of several agents that has logged nothing usable; `what` it lacks."""
        for agent, episodes in self.by_agent.items():
            if len(self.by_agent) > 1 and episodes and not any(map(usable, episodes)):
                problem = f"has logged {len(episodes)} episodes, and no step of them has {what}"
                fix = "remove the agent, or name only agents that see and do the same"
                raise ConfigError("spec.data.agents", agent, problem, fix)


def agents_of(order: training_order.Order) -> tuple[str, ...]:
    """Names of the agents whose logs the run reads, each once, the one that it trains first; none without that one."""
    own, others = order.spec.data.learning_agent_ref, order.spec.data.agents or ()
    return tuple(dict.fromkeys((own.name, *others))) if own is not None else ()


def pooled(
    read: Callable[[str, int], list[Item]], agents: Sequence[str], limit: int, size: Callable[[Item], int]
) -> dict[str, list[Item]]:
    """Logs of these agents, together of about `limit`: an equal part of each. What one lacks goes to the next ones.

    What the last ones lack goes to the first, which is then read again.
    """
    logs, left = dict[str, list[Item]](), limit
    for place, agent in enumerate(agents):
        part = max(1, left // (len(agents) - place))
        logs[agent] = read(agent, part)
        left -= min(part, sum(map(size, logs[agent])))
    first, part = agents[0], limit // len(agents)
    if left > 0 and sum(map(size, logs[first])) >= part:
        logs[first] = read(first, part + left)
    return logs


def in_turn(logs: Iterable[Sequence[Item]]) -> list[Item]:
    """One of each, then the next of each."""
    return [item for item in chain.from_iterable(zip_longest(*logs)) if item is not None]


def read_log(order: training_order.Order, store: Store, limit: int, patience: float | None = None) -> Log:
    """Episodes of the file or else of the agents that the order names, with `limit` steps or a few more.

    Raises ConfigError when the order names neither.
    """
    recording = getattr(order.parameters, "recording", None)
    if recording:
        return Log({"": [logged(one) for one in read_file(Trajectory, recording, store)]})
    agents = agents_of(order)
    if not agents:
        problem = f"is missing: {order.spec.algorithm} learns from what an agent has logged"
        raise ConfigError("spec.data.learningAgentRef", "", problem, "set it, or spec.hyperparameters.recording")
    selection = chosen(order)
    read = lambda agent, most: store.episodes(agent, selection, most, patience)  # noqa: E731
    return Log(pooled(read, agents, limit, lambda episode: len(episode.steps)), selection)


def read_file(kind: type[Document], uri: str, store: Store) -> list[Document]:
    """Trajectories or preferences in a recorded file; raises ConfigError naming the line that is none."""
    field, one = "spec.hyperparameters.recording", kind.__name__.lower()
    fix = f"point it to a file with one {one} as JSON on each line"
    documents: list[Document] = []
    for number, line in enumerate(baseline_policy.fetch(uri, store, field, fix).splitlines(), 1):
        try:
            documents.append(kind.model_validate_json(line))
        except ValidationError as error:
            problem = f"line {number} is not a {one} ({error.errors()[0]['msg']})"
            raise ConfigError(field, uri, problem, fix) from None
    return documents


def chosen(order: training_order.Order) -> EpisodeSelection:
    """The order's filter as the store reads it; an age is counted back from now. Raises ConfigError."""
    wanted, by = order.spec.data.filter, order.reward_policy
    fields = wanted.model_dump(exclude_none=True) if wanted is not None else {}
    if order.spec.data.rewards == "policy" and by is not None:
        fields |= {"reward_policy": by.name, "reward_policy_revision": by.revision}
    age = fields.pop("max_age_seconds", None)
    if age is not None:
        fields["since"] = datetime.now(UTC) - timedelta(seconds=age)
    try:
        selection = EpisodeSelection.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = to_camel(str(first["loc"][0])) if first["loc"] else ""
        raise ConfigError(
            f"spec.data.filter.{field}", first["input"], f"is refused: {first['msg']}", "correct it"
        ) from None
    since, until = selection.since, selection.until
    if since is not None and until is not None and until <= since:
        problem = f"is not after {since.isoformat()}, from which on episodes are asked for: it selects none"
        fix = "set until to a later time, or correct since or maxAgeSeconds"
        raise ConfigError("spec.data.filter.until", until.isoformat(), problem, fix)
    return selection


def note_of(log: Log, store: Store, steps: int, shared: int = 0, message: str = "") -> ExperienceRead:
    """A note of the log, `shared` of its episodes with other agents; the list of all ids is durable on return."""
    episodes = log.episodes
    ids, revisions = [one.trajectory_id for one in episodes], {one.policy_revision for one in episodes}
    return listed(ids, store, steps, log.by_agent, revisions).model_copy(
        update={"selection": log.selection, "credited": shared, "message": message[:1024]}
    )


def listed(
    ids: Sequence[str],
    store: Store,
    steps: int,
    by_agent: Mapping[str, Sequence[object]],
    revisions: Iterable[str] = (),
) -> ExperienceRead:
    """A note of what has these ids; their list is durable on return."""
    body = "".join(f"{one}\n" for one in ids).encode()
    several = len(by_agent) > 1
    return ExperienceRead(
        agent=next(iter(by_agent)) or None,
        agents={name: len(items) for name, items in by_agent.items()} if several else {},
        read_at=datetime.now(UTC),
        episodes=len(ids),
        steps=steps,
        model_revisions=sorted(revisions)[:MOST_NAMED],
        trajectory_ids=list(ids[:MOST_NAMED]),
        ids_uri=store.put_artifact(body) if ids else None,
        ids_sha256=digest(body) if ids else None,
    )


def nothing_of(log: Log) -> str:
    """Why there is nothing to learn from."""
    whose = f"the log of {log.whose}" if log.agent else "the recorded file"
    if log.episodes:
        return f"no step of the {len(log.episodes)} episodes in {whose} has the environment's observations and actions"
    fields = log.selection.model_dump(mode="json", exclude_defaults=True, by_alias=True) if log.selection else {}
    wanted = {to_camel(name): value for name, value in fields.items() if not name.startswith("reward_policy")}
    filtered = f" that spec.data.filter selects: {json.dumps(wanted)[:512]}" if wanted else ""
    return f"no episode in {whose}{filtered}"
