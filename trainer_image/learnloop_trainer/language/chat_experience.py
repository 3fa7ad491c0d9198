"""Sources of a language model's experience: its own conversations, recorded turns, people's preferences."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire import language, trajectory
from learnloop_environments import errors, randomness
from learnloop_environments.conversations.conversation_world import Message
from learnloop_trainer import distributed, progress_reporter
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import Arrays, LanguageNetwork
from learnloop_trainer.language.rows import ANY, Bounds, Episode, Pair, Row, Sampled, of_arrays, rows_of, to_arrays
from learnloop_trainer.language.sampler import Draw, Limits, Rollouts, Sampler
from learnloop_trainer.store.run_store import pack, part, under, unpack


@dataclass(frozen=True, slots=True)
class Plan:
    """How much experience: episodes a round over all ranks, and conversations a task.

    `recorded`: episodes of a record at most, the first ones of it; None: all.
    """

    episodes: int
    group_size: int
    recorded: int | None = None


class Played:
    """Conversations the model holds itself, the same for any number of ranks."""

    def __init__(self, rollouts: Rollouts, limits: Limits, plan: Plan, group: distributed.Group) -> None:
        self._rollouts, self._limits, self._plan, self._group = rollouts, limits, plan, group

    def episodes(self, network: LanguageNetwork, occasion: int) -> list[Episode]:
        """This rank's share of round `occasion`: all conversations about a task are on one rank."""
        size = self._plan.group_size
        groups = self._plan.episodes // size
        share = self._group.place.share(groups)
        tasks = range(occasion * groups + share.start, occasion * groups + share.stop)
        draws = [Draw(task, task * size + one) for task in tasks for one in range(size)]
        with network.sampling() as model:
            return self._rollouts.play(draws, randomness.Split.TRAINING, Sampler(model), self._limits, occasion)

    def state(self) -> Arrays:
        return {}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Nothing is recorded."""


class Recorded:
    """Episodes that were recorded, the same on all ranks."""

    def __init__(self, fetch: Callable[[], list[Episode]], plan: Plan, group: distributed.Group) -> None:
        """`fetch` is asked once, on rank 0, unless a checkpoint has the record."""
        self._fetch, self._plan, self._group = fetch, plan, group
        self._record: list[Episode] | None = None

    def every(self) -> list[Episode]:
        """Collective the first time."""
        if self._record is None:
            own = self._fetch()[: self._plan.recorded] if self._group.place.rank == 0 else []
            self._record = shared(own, self._group)
            if not self._record:
                fix = "record turns sampled with top_p 1 first, or name an environment to hold conversations in"
                raise errors.ConfigError("spec.data", "", "has no recorded turns to learn from", fix)
        return self._record

    def episodes(self, network: LanguageNetwork, occasion: int) -> list[Episode]:
        """The record is gone through again and again, whole groups at a time."""
        del network
        batches = self._batches()
        batch = batches[occasion % len(batches)]
        share = self._group.place.share(len(batch))
        return [episode for group in batch[share.start : share.stop] for episode in group]

    def rounds(self) -> int:
        return len(self._batches())

    def _batches(self) -> list[list[list[Episode]]]:
        return in_batches(self.every(), self._plan.episodes, self._plan.group_size)

    def state(self) -> Arrays:
        return {} if self._record is None else under("record", to_arrays(self._record))

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        record = part(state, "record")
        self._record = of_arrays(record) if record else None


class Both:
    """The record, gone through once, then conversations the model holds itself."""

    def __init__(self, record: Recorded, played: Played) -> None:
        """The record's last batch is followed by the first round of rollouts."""
        self._record, self._played = record, played

    def episodes(self, network: LanguageNetwork, occasion: int) -> list[Episode]:
        rounds = self._record.rounds()
        if occasion < rounds:
            return self._record.episodes(network, occasion)
        return self._played.episodes(network, occasion - rounds)

    def state(self) -> Arrays:
        return self._record.state()

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self._record.restore(state)


class Preferred:
    """Pairs that people judged, the same on all ranks."""

    def __init__(self, fetch: Callable[[], list[Pair]], group: distributed.Group) -> None:
        """`fetch` is asked once, on rank 0, unless a checkpoint has the record."""
        self._fetch, self._group = fetch, group
        self._pairs: list[Pair] | None = None

    def pairs(self) -> list[Pair]:
        """Collective the first time."""
        if self._pairs is None:
            own = self._fetch() if self._group.place.rank == 0 else []
            both = shared([episode for pair in own for episode in (pair.chosen, pair.rejected)], self._group)
            self._pairs = [Pair(chosen, rejected) for chosen, rejected in zip(both[::2], both[1::2], strict=True)]
        return self._pairs

    def state(self) -> Arrays:
        both = [episode for pair in self._pairs or () for episode in (pair.chosen, pair.rejected)]
        return under("record", to_arrays(both)) if both else {}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        both = of_arrays(record) if (record := part(state, "record")) else []
        pairs = [Pair(chosen, rejected) for chosen, rejected in zip(both[::2], both[1::2], strict=True)]
        self._pairs = pairs or None


def shared(own: Sequence[Episode], group: distributed.Group) -> list[Episode]:
    """Collective: the episodes of all ranks, in the order of the ranks, on every rank."""
    if group.place.size == 1:
        return list(own)
    bodies = group.gather(pack(to_arrays(own), {}))
    whole = [episode for body in bodies for episode in of_arrays(unpack(body)[0])]
    body = group.broadcast(pack(to_arrays(whole), {}) if group.place.rank == 0 else None)
    return of_arrays(unpack(body)[0]) if body else []


def in_batches(episodes: Sequence[Episode], size: int, group_size: int) -> list[list[list[Episode]]]:
    """Whole groups in batches of about `size` episodes.

    Conversations that began like no other are compared with `group_size` - 1 others: the mean of their rewards is a
    baseline that does not depend on what this one said.
    """
    groups: dict[int, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    alone = [members[0] for members in groups.values() if len(members) == 1]
    whole = [members for members in groups.values() if len(members) > 1]
    mixed = [alone[begin : begin + max(2, group_size)] for begin in range(0, len(alone), max(2, group_size))]
    if len(mixed) > 1 and len(mixed[-1]) == 1:
        last = mixed.pop()
        mixed[-1] += last
    numbered = [
        [replace(episode, group=number) for episode in members] for number, members in enumerate([*whole, *mixed])
    ]
    batches: list[list[list[Episode]]] = [[]]
    for members in numbered:
        if batches[-1] and sum(map(len, batches[-1])) + len(members) > size:
            batches.append([])
        batches[-1].append(members)
    return batches


def episodes_of(
    trajectories: Sequence[Sequence[trajectory.Step]],
    staleness: int,
    template: str | None,
    base: str | None = None,
    bounds: Bounds = ANY,
) -> list[Episode]:
    """Recorded turns as episodes; what cannot be learned from is left out, counted and said.

    A session is left out whole: a reward belongs to all its turns. Steps that are not turns, as those that redaction
    left as text, are not learned from, and their rewards count. Since its policy spoke last, more than `staleness`
    other revisions must not have spoken; `template`, `base`: digests of the chat template and of the base model the run
    uses; `bounds`: what that model can read. The order is kept.
    """
    refused: Counter[str] = Counter()
    sessions: list[list[language.LanguageTurn]] = []
    for steps in trajectories:
        try:
            rewarded = [(language.turn_of(step), step.reward) for step in steps]
        except ValueError as error:
            refused[str(error)] += 1
            continue
        turns = [turn.model_copy(update={"reward": reward}) for turn, reward in rewarded if turn is not None]
        why = next((turn.learnable for turn in turns if turn.learnable), "" if turns else "it has no turns")
        why = why or _foreign(turns, template, base)
        if why:
            refused[why] += 1
            continue
        of_the_whole = sum(reward for turn, reward in rewarded if turn is None)
        sessions.append([*turns[:-1], turns[-1].model_copy(update={"reward": turns[-1].reward + of_the_whole})])
    ages = _ages(sessions)
    usable = []
    for turns in sessions:
        age = max(ages[turn.policy_revision] for turn in turns)
        if age > staleness:
            refused[f"more than {staleness} other policies have spoken since"] += 1
            continue
        episode = _episode(turns, age)
        if why := bounds.refuse(episode):
            refused[why] += 1
            continue
        usable.append(episode)
    for why, count in refused.most_common():
        progress_reporter.say(f"{count} recorded conversations are left out: {why}")
    return usable


def _foreign(turns: Sequence[language.LanguageTurn], template: str | None, base: str | None) -> str:
    """Why the tokens of turns mean nothing to this run's model; "" where they do."""
    if base and any(turn.base_sha256 not in (None, base) for turn in turns):
        return "another base model drew it"
    if template and any(turn.template_sha256 not in (None, template) for turn in turns):
        return "another chat template wrote it"
    return ""


def _ages(sessions: Sequence[Sequence[language.LanguageTurn]]) -> dict[str, int]:
    """How many revisions have spoken after each one's last turn: one that serves again after a rollback is not old."""
    last: dict[str, float] = {}
    for turn in (turn for turns in sessions for turn in turns):
        at = turn.at.timestamp()
        last[turn.policy_revision] = max(at, last.get(turn.policy_revision, at))
    newest = sorted(last, key=lambda revision: (-last[revision], revision))
    return {revision: age for age, revision in enumerate(newest)}


def _episode(turns: Sequence[language.LanguageTurn], age: int) -> Episode:
    ordered = sorted(turns, key=lambda turn: (turn.row, turn.position))
    rows, broken = rows_of([drawn(turn) for turn in ordered])
    key = hashlib.sha256(np.asarray(ordered[0].prompt_ids, dtype=np.int64).tobytes()).digest()
    group = int.from_bytes(key[:7], "big")
    cut = any(turn.finish_reason == "length" for turn in turns)
    success = next((turn.success for turn in reversed(ordered) if turn.success is not None), None)
    reward = sum(turn.reward for turn in turns)
    return Episode(rows, reward, group, success, cut, broken, age, {"turns": float(len(turns))})


def drawn(turn: language.LanguageTurn) -> Sampled:
    complete = turn.finish_reason != "length"
    return Sampled(turn.prompt_ids, turn.sampled_ids, turn.log_probs, turn.sampling.temperature or 1.0, complete)


def pairs_of(
    preferences: Sequence[language.Preference], chat: Chat, base: str | None = None, bounds: Bounds = ANY
) -> list[Pair]:
    """People's preferences as pairs. A text, which was not sampled, is encoded once.

    Pairs with an answer of a fallback, of another template or of another base model are left out, counted and said; so
    are those that a model of these `bounds` cannot read.
    """
    refused: Counter[str] = Counter()
    pairs = []
    for item in preferences:
        turns = [*item.chosen.turns, *item.rejected.turns]
        why = "a fallback answered" if any(turn.fallback for turn in turns) else _foreign(turns, chat.digest, base)
        if why:
            refused[why] += 1
            continue
        try:
            chosen, rejected = _answer(item.chosen, item, chat), _answer(item.rejected, item, chat)
        except errors.ConfigError as error:
            refused[f"the chat template {error.problem}"] += 1
            continue
        if why := bounds.refuse(chosen) or bounds.refuse(rejected):
            refused[why] += 1
            continue
        pairs.append(Pair(chosen, rejected))
    for why, count in refused.most_common():
        progress_reporter.say(f"{count} preferences are left out: {why}")
    return pairs


def _answer(answer: language.Answer, preference: language.Preference, chat: Chat) -> Episode:
    if answer.turns:
        return _episode(answer.turns, 0)
    question = [Message(message.role, message.content) for message in preference.messages]
    return Episode([written(*chat.answered(question, answer.text or ""))], 0.0, 0)


def demonstrated(chat: Chat, messages: Sequence[Message]) -> Row:
    """A conversation that was written, as a row whose assistant's tokens are learned."""
    return written(*chat.demonstration(messages))


def written(ids: Sequence[int], learned: Sequence[bool]) -> Row:
    """Text that no model sampled, as a row of which the `learned` tokens count."""
    mask = np.asarray(learned, dtype=np.bool_)
    nothing = np.zeros(len(ids), dtype=np.float32)
    return Row(np.asarray(ids, dtype=np.int64), mask, nothing, np.ones(len(ids), dtype=np.float32))
