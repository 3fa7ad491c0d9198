"""Sampling from a language model, and conversations held with it.

Families of the transformers library differ in which arguments they take and honour: a bidirectional one sees the
future, some ignore padding. Training such a model would silently learn from wrong ratios.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.conversations.conversation_world import Conversation, ConversationWorld
from learnloop_environments.make import WORLDS
from learnloop_environments.randomness import Purpose, Split, uniforms
from learnloop_environments.watchdog import Watchdog
from learnloop_trainer.language import network, prefix_cache
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.rows import Episode, Row, Sampled, make, rows_of

LENGTHS, PROMPT = (12, 10, 5), 3
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""Of a log-probability; a bfloat16 has 8 bits."""


@torch.no_grad()
def unfaithful(model: Any, words: int) -> str:
    """Why the model's log-probabilities depend on how it is called; "" where they do not."""
    device = next(model.parameters()).device
    draws = torch.Generator().manual_seed(0)
    texts = [torch.randint(words, (length,), generator=draws).tolist() for length in LENGTHS]
    try:
        alone = [_spread(model(input_ids=torch.tensor([text], device=device)).logits[0]) for text in texts]
        trained = _trained(model, texts, device)
        sampled = _sampled(model, texts)
    except Exception as error:  # architectures are foreign code and raise what they like
        return " ".join(f"does not take padded batches or a cache ({type(error).__name__}: {error})".split())[:200]
    wanted = torch.cat(
        [spread[PROMPT - 1 : -1].gather(1, _after(text, device)) for spread, text in zip(alone, texts, strict=True)]
    )
    spoken = torch.stack([spread[-3 + place] for place in (0, 1) for spread in alone])
    limit = TOLERANCE.get(model.dtype, 0.5)
    if not (trained - wanted.squeeze(1)).abs().max() < limit:
        return "gives a token another probability in a padded batch than alone"
    if not (sampled - spoken).abs().max() < limit:
        return "gives a token another probability while it speaks than when it reads the whole text"
    return ""


def _spread(logits: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits.float(), dim=-1)


def _after(text: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(text[PROMPT:], device=device).unsqueeze(1)


def _trained(model: Any, texts: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """Log-probabilities of all tokens after the prompt, as training computes them."""
    rows = [
        Row(
            np.asarray(text, dtype=np.int64),
            np.arange(len(text)) >= PROMPT,
            np.zeros(len(text), dtype=np.float32),
            np.ones(len(text), dtype=np.float32),
        )
        for text in texts
    ]
    batch = make([Episode([row], 0.0, 0) for row in rows], range(len(rows)), device)
    spread = _spread(network.read_tokens(model, batch)[1])
    return spread.gather(1, batch.ids[batch.row, batch.column].unsqueeze(1)).squeeze(1)


def _sampled(model: Any, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Distributions of the last token but one and the last one, as sampling computes them."""
    reading = prefix_cache.PrefixCache(model).read([text[:-2] for text in texts])
    first = _spread(reading.logits)
    token = torch.tensor([[text[-2]] for text in texts], device=reading.mask.device)
    reading.read(model, token, torch.ones_like(token))
    return torch.cat([first, _spread(reading.logits)])


# A token is the first whose cumulative probability exceeds a uniform number that belongs to (conversation, turn,
# place), so one rank and many draw the same. Nothing is cut from the distribution: a nucleus would give ratios a bias
# that no correction removes.

Uniforms = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """How to draw.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest token.
        stops: ids that end a turn.
        most: tokens of a turn at most.
        context: tokens of a prompt and its answer at most.
    """

    temperature: float
    stops: Collection[int]
    most: int
    context: int


class Sampler:
    """Draws turns of conversations; see rollouts.Speaker. It holds for weights as they are now."""

    def __init__(self, model: Any) -> None:
        """Keys and values of a conversation are kept for its next turn."""
        self._read = prefix_cache.PrefixCache(model)
        self._model = model

    @torch.no_grad()
    def __call__(
        self, prompts: Sequence[Sequence[int]], uniforms: Callable[[int], Uniforms], limits: Limits
    ) -> list[Sampled | None]:
        """One turn for each prompt; None where the prompt leaves no room in the context.

        `uniforms(place)` gives the numbers [prompts] in [0, 1) for the place-th token. Log-probabilities are those of
        the distribution drawn from, after the temperature; of the likeliest token (temperature 0) at temperature 1.
        """
        drawn: list[Sampled | None] = [None] * len(prompts)
        alive = np.asarray([at for at, prompt in enumerate(prompts) if len(prompt) < limits.context], dtype=np.int64)
        if not len(alive):
            return drawn
        reading = self._read.read([prompts[at] for at in alive])
        words: list[list[int]] = [[] for _ in prompts]
        chances: list[list[float]] = [[] for _ in prompts]
        heat = limits.temperature or 1.0
        stops = np.asarray(sorted(limits.stops), dtype=np.int64)
        for place in range(limits.most):
            spread = torch.log_softmax(reading.logits.float() / heat, dim=1)
            token = _draw(spread, uniforms(place)[alive]) if limits.temperature else spread.argmax(1)
            chance = spread.gather(1, token.unsqueeze(1)).squeeze(1)
            sampled = token.cpu().numpy()
            ended = np.isin(sampled, stops)
            speaking = ~ended
            for row, (at, word, log_prob) in enumerate(
                zip(alive.tolist(), sampled.tolist(), chance.tolist(), strict=True)
            ):
                words[at].append(word)
                chances[at].append(log_prob)
                if len(prompts[at]) + len(words[at]) >= limits.context or place + 1 == limits.most:
                    speaking[row] = False
                if not speaking[row]:
                    drawn[at] = Sampled(prompts[at], words[at], chances[at], heat, bool(ended[row]))
            complete = np.flatnonzero(ended).tolist()
            read = [(int(alive[row]), [*prompts[alive[row]], *words[alive[row]][:-1]]) for row in complete]
            self._read.keep(reading, complete, read)
            if not speaking.any():
                break
            rows = torch.from_numpy(np.flatnonzero(speaking)).to(token.device)
            if len(rows) < len(alive):
                reading.select(rows)
                token, alive = token[rows], alive[speaking]
            tokens = token.unsqueeze(1)
            reading.read(self._model, tokens, torch.ones_like(tokens))
        return drawn


def _draw(spread: torch.Tensor, uniform: Uniforms) -> torch.Tensor:
    """The first token whose cumulative probability exceeds the number; spread [n, words], uniform [n]."""
    sums = spread.double().exp().cumsum(1)
    wanted = torch.from_numpy(uniform).to(spread.device).unsqueeze(1) * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True).squeeze(1).clamp_max(spread.shape[1] - 1)


T = TypeVar("T")


class Speaker(Protocol):
    """A source of turns: the model in this process, or a server."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], uniforms: Callable[[int], Uniforms], limits: Limits
    ) -> list[Sampled | None]:
        """See sampler.Sampler."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One conversation to hold: the number of its task, and its own number, by which its tokens are drawn."""

    task: int
    number: int


@dataclass(slots=True)
class _Held:
    draw: Draw
    conversation: Conversation
    prompt: list[int]
    turns: list[Sampled]
    truncated: bool = False
    open: bool = True


class Rollouts:
    """A world and the chat that leads to it."""

    def __init__(self, name: str, world: ConversationWorld, chat: Chat, seed: int, batch: int) -> None:
        """`batch`: conversations that speak at the same time. What a foreign world raises ends the run, by name."""
        self._world, self._chat, self._seed, self._batch = world, chat, seed, batch
        self._run: Callable[[str, Callable[[], Any]], Any] = _plainly if name in WORLDS else Watchdog(name).run

    def play(self, draws: Sequence[Draw], split: Split, speak: Speaker, limits: Limits, occasion: int) -> list[Episode]:
        """Hold these conversations; `occasion` with a draw's number decides its tokens. Groups are tasks."""
        episodes: list[Episode] = []
        for begin in range(0, len(draws), self._batch):
            held = [self._begun(draw, split) for draw in draws[begin : begin + self._batch]]
            turn = 0
            while speaking := [item for item in held if item.open]:
                self._turn(speaking, speak, limits, (occasion, turn))
                turn += 1
            episodes += [self._episode(item) for item in held]
        return episodes

    def _begun(self, draw: Draw, split: Split) -> _Held:
        conversation = self._run("begin", lambda: self._world.begin(split, self._seed, draw.task))
        return _Held(draw, conversation, self._chat.opening(conversation.opening), [])

    def _turn(self, speaking: Sequence[_Held], speak: Speaker, limits: Limits, when: tuple[int, int]) -> None:
        numbers = np.asarray([item.draw.number for item in speaking], dtype=np.uint64)

        def drawn(place: int) -> Uniforms:
            return uniforms(Purpose.ACTION, self._seed, when[0], when[1], place, numbers)

        for item, turn in zip(speaking, speak([item.prompt for item in speaking], drawn, limits), strict=True):
            if turn is None:  # no room left in the context
                item.truncated, item.open = True, False
                continue
            item.turns.append(turn)
            if not turn.complete:
                item.truncated, item.open = True, False
                continue
            conversation, message = item.conversation, self._chat.message(turn.sampled_ids)
            replies = self._run("reply", lambda c=conversation, m=message: c.reply(m))  # type: ignore[misc]
            item.open = not conversation.done
            if item.open:
                item.prompt = [*turn.prompt_ids, *turn.sampled_ids, *self._chat.continuation(replies)]

    @staticmethod
    def _episode(item: _Held) -> Episode:
        rows, broken = rows_of(item.turns)
        conversation = item.conversation
        success = bool(conversation.success) if conversation.done and conversation.success is not None else None
        values = {"turns": float(len(item.turns))}
        reward = float(conversation.reward)
        return Episode(rows, reward, item.draw.task, success, item.truncated, broken, values=values)


def _plainly(what: str, action: Callable[[], T]) -> T:
    del what
    return action()
