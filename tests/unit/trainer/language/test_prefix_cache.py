"""A cached prefix is not read again, and the model says the same as after a full read."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from learnloop_environments.randomness import Purpose, uniforms
from learnloop_trainer.language.prefix_cache import WORTH
from learnloop_trainer.language.rows import Sampled
from learnloop_trainer.language.sampler import Limits, Sampler

LIMITS = Limits(1.0, set(range(0, 378, 6)), 24, 400)
SYSTEM = list(range(3, 3 + 2 * WORTH))


def draw(speak: Sampler, prompts: list[list[int]], turn: int, limits: Limits = LIMITS) -> list[Sampled | None]:
    """A turn of each conversation, with numbers of its own."""
    numbers = np.arange(len(prompts))
    return speak(prompts, lambda place: uniforms(Purpose.ACTION, 0, turn, place, numbers), limits)


@contextmanager
def reads(model) -> Iterator[list[int]]:
    """How many tokens, padding included, the model reads in each call."""
    counted, forward = list[int](), model.forward

    def counting(*args, **kwargs):
        counted.append(kwargs["input_ids"].numel())
        return forward(*args, **kwargs)

    model.forward = counting
    try:
        yield counted
    finally:
        del model.forward


def talk(model, turns: int, *, uncached: bool) -> list[list[Sampled]]:
    """Conversations of several turns of different lengths; `afresh`: everything is read again in each turn."""
    rng = np.random.default_rng(8)
    prompts = [SYSTEM + rng.integers(3, 40, 3 + number // 2).tolist() for number in range(12)]
    rounds: list[list[Sampled]] = [[] for _ in prompts]
    speak, open_ = Sampler(model), list(range(12))
    for turn in range(turns):
        speak = Sampler(model) if uncached else speak
        numbers = np.asarray(open_)
        drawn = speak(
            [prompts[at] for at in open_],
            lambda place, turn=turn, numbers=numbers: uniforms(Purpose.ACTION, 0, turn, place, numbers),
            LIMITS,
        )
        for at, one in zip(list(open_), drawn, strict=True):
            rounds[at].append(one)
            if not one.complete or (at + turn) % 5 == 4:  # some conversations end before others
                open_.remove(at)
            prompts[at] = [*one.prompt_ids, *one.sampled_ids, *rng.integers(3, 40, 1 + at % 4).tolist()]
    return rounds


def test_a_conversation_says_the_same_whether_or_not_the_model_reads_it_anew(tiny) -> None:
    cached, uncached = talk(tiny, 5, uncached=False), talk(tiny, 5, uncached=True)
    assert sum(map(len, cached)) > 20
    for one, other in zip(cached, uncached, strict=True):
        assert [turn.sampled_ids for turn in one] == [turn.sampled_ids for turn in other]
        for a, b in zip(one, other, strict=True):
            assert np.allclose(a.log_probs, b.log_probs, atol=2e-5)


def test_the_next_turn_reads_what_is_new_alone(tiny) -> None:
    every = Limits(1.0, set(range(tiny.config.vocab_size)), 4, 400)  # a turn of one token
    speak = Sampler(tiny)
    first = draw(speak, [[*SYSTEM, number] for number in range(6)], 0, every)
    prompts = [[*turn.prompt_ids, *turn.sampled_ids, 7, 8] for turn in first if turn is not None]
    with reads(tiny) as counted:
        draw(speak, prompts, 1, every)
    assert counted == [6 * 3], "the last token of the answer was drawn and not read yet"


def test_equal_prompts_are_read_once_and_a_common_beginning_too(tiny) -> None:
    every = Limits(1.0, set(range(tiny.config.vocab_size)), 4, 400)
    groups = [[*SYSTEM, number] for number in range(3) for _ in range(4)]
    with reads(tiny) as counted:
        draw(Sampler(tiny), groups, 0, every)
    assert counted == [len(SYSTEM), 3]


def test_a_history_that_was_changed_is_read_anew(tiny) -> None:
    every = Limits(1.0, set(range(tiny.config.vocab_size)), 4, 400)
    speak = Sampler(tiny)
    first = draw(speak, [[*SYSTEM, 40], [*SYSTEM, 41]], 0, every)
    changed = [[9, *SYSTEM, 40, 5], [*first[1].prompt_ids, *first[1].sampled_ids, 6]]
    draws = draw(speak, changed, 1, every)
    wanted = draw(Sampler(tiny), changed, 1, every)
    assert [one and one.sampled_ids for one in draws] == [one and one.sampled_ids for one in wanted]
