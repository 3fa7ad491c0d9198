"""A reward model: it learns planted preferences, never from held-out pairs, by the loss that float64 confirms."""

import copy
import math

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.algorithms import Lora, hyperparameters
from learnloop_common.acting.reward_model import NoRewardModel, RewardModel, TooLong, probability
from learnloop_environments.conversations.conversation_world import Message
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed import Alone
from learnloop_trainer.language import lora
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import BradleyTerry, divided
from learnloop_trainer.language.chat_experience import Preferred, written
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import LanguageNetwork, Setting
from learnloop_trainer.language.rows import Episode, Pair, Row, make
from learnloop_trainer.training_run.language_training import network_of
from learnloop_trainer.training_run.reward_model_proof import agreement, exported, scored, wilson
from testing.language.tiny_model import model

GOOD, BAD = "look", "box"  # what people in this world like and dislike to read


def answer(chat: Chat, question: str, text: str) -> Episode:
    return Episode([written(*chat.answered([Message("user", question)], text))], 0.0, 0)


def planted(chat: Chat, count: int, seed: int, *, shuffled: bool = False) -> list[Pair]:
    """Answers of digits with one word among them, which decides; shuffled: a coin decides."""
    dice = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        texts = []
        for word in (GOOD, BAD):
            digits = [str(digit) for digit in dice.integers(0, 10, 4)]
            digits.insert(int(dice.integers(0, 5)), word)
            texts.append(" ".join(digits))
        if shuffled and dice.random() < 0.5:
            texts.reverse()
        question = f"key {dice.integers(0, 100)}"
        pairs.append(Pair(answer(chat, question, texts[0]), answer(chat, question, texts[1])))
    return pairs


def learner(tiny, pairs: list[Pair], total: int = 1280, **changes) -> BradleyTerry:
    settings = {"weights": "full", "learning_rate": 5e-3, "batch_pairs": 16, **changes}
    parameters = hyperparameters("bradley-terry", **settings)
    adapters = None
    if parameters.weights == "lora":
        adapters = lora.attach(tiny, parameters.lora.layers, parameters.lora.rank, parameters.lora.alpha, 0)
    network = LanguageNetwork(tiny, adapters, value_head=True)
    group = Alone()
    return BradleyTerry(parameters, Setting(network, Preferred(lambda: pairs, group), group, 0, total))


def trained(tiny, pairs: list[Pair], total: int = 1280, **changes) -> BradleyTerry:
    learner_run = learner(tiny, pairs, total, **changes)
    while learner_run.step < total:
        learner_run.iterate()
    return learner_run


def accuracy(made: BradleyTerry) -> float:
    return float(agreement(*scored(made.network, made.pairs.held_out, made.parameters)).mean())


@pytest.mark.parametrize("changes", [{}, {"weights": "lora", "lora": Lora(rank=8), "learning_rate": 1e-2}])
def test_planted_preferences_are_learned_and_held_out_pairs_say_so(tiny, chat, changes):
    result = trained(tiny, planted(chat, 400, 1), **changes)
    assert len(result.pairs.held_out) == 80
    assert accuracy(result) >= 0.8


def test_preferences_by_a_coin_stay_near_one_half(tiny, chat: Chat) -> None:
    result = trained(tiny, planted(chat, 400, 2, shuffled=True))
    low, high = wilson(accuracy(result) * 80, 80)
    assert low <= 0.5 <= high + 0.05


def test_what_the_held_out_pairs_say_changes_no_weight(words, chat: Chat) -> None:
    pairs = planted(chat, 60, 3)
    away = {id(pair) for pair in divided(pairs, 0.2, 0).held_out}
    turned = [Pair(pair.rejected, pair.chosen) if id(pair) in away else pair for pair in pairs]
    one, other = (
        trained(model(len(words), 3, words.eos_token_id), some, 128).network.digest() for some in (pairs, turned)
    )
    assert one == other
    learned = [Pair(pair.rejected, pair.chosen) if id(pair) not in away else pair for pair in pairs]
    assert trained(model(len(words), 3, words.eos_token_id), learned, 128).network.digest() != one


def test_two_answers_that_were_compared_twice_are_on_one_side(chat: Chat) -> None:
    pairs = planted(chat, 60, 4)
    again = [Pair(pair.rejected, pair.chosen) for pair in pairs]
    sides = divided([*pairs, *again], 0.3, 0)
    assert len(sides.held_out) == 36
    assert sides.sha256 == divided([*again, *pairs], 0.3, 0).sha256, "whatever their order"
    assert sides.sha256 != divided(pairs, 0.3, 1).sha256

    def both(some) -> set[frozenset[bytes]]:
        return {frozenset(one.rows[0].ids.tobytes() for one in (pair.chosen, pair.rejected)) for pair in some}

    assert not both(sides.held_out) & both(sides.learned)


def test_too_few_preferences_are_refused_with_the_number_that_is_needed(chat: Chat) -> None:
    with pytest.raises(ConfigError, match="27 preferences to learn from and 3 held out, 10 are needed"):
        divided(planted(chat, 30, 5), 0.1, 0)


def reference(twin, head, pairs: list[Pair], decay: float) -> torch.Tensor:
    """The loss in float64: one answer at a time, without padding, by the formula."""
    total = torch.zeros((), dtype=torch.float64)
    for pair in pairs:
        scores = []
        for one in (pair.chosen, pair.rejected):
            hidden = twin.base_model(input_ids=torch.from_numpy(one.rows[-1].ids)[None]).last_hidden_state
            end = int(np.flatnonzero(one.rows[-1].sampled)[-1])
            scores.append(head(hidden[0, end])[0])
        total = total - torch.log(1 / (1 + torch.exp(-(scores[0] - scores[1]))))
        total = total + decay * (scores[0] ** 2 + scores[1] ** 2) / 2
    return total / len(pairs)


def test_loss_and_gradients_are_those_of_a_float64_reference(tiny, chat: Chat) -> None:
    pairs = planted(chat, 60, 6)
    result = learner(tiny, pairs, score_decay=0.01, tokens_per_batch=200)
    head = result.network.value_head
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    twin, twin_head = copy.deepcopy(tiny).double(), copy.deepcopy(head).double()
    for part in (*twin.parameters(), *twin_head.parameters()):
        part.grad = None
    wanted = reference(twin, twin_head, pairs[:6], 0.01)
    wanted.backward()

    from learnloop_trainer.language.network import Sums
    from learnloop_trainer.language.rows import batched_pairs

    sums = Sums()
    parts = batched_pairs(pairs[:6], 200)
    assert len(parts) > 1, "several batches add up"
    for some in parts:
        result._backward(some, 6.0, sums)
    own = dict(tiny.named_parameters()) | {f"head.{name}": part for name, part in head.named_parameters()}
    expected = dict(twin.named_parameters()) | {f"head.{name}": part for name, part in twin_head.named_parameters()}
    largest = max(float(part.grad.abs().max()) for part in expected.values() if part.grad is not None)
    for name, part in expected.items():
        if part.grad is not None:
            gap = float((own[name].grad.double() - part.grad).abs().max())
            assert gap <= 1e-6 * max(1.0, largest), name
    means = sums.means(Alone(), ("loss", "margin"))
    without = reference(twin, twin_head, pairs[:6], 0.0)
    assert means["loss"] == pytest.approx(float(without), abs=1e-6)


def test_the_score_is_read_where_the_answer_ends(tiny) -> None:
    network = LanguageNetwork(tiny, value_head=True)
    with torch.no_grad():
        network.value_head.weight.fill_(0.1)
    ids = np.arange(5, 13)
    mask = np.zeros(8, dtype=np.bool_)
    mask[3:6] = True  # the world says something after the answer
    nothing, ones = np.zeros(8, dtype=np.float32), np.ones(8, dtype=np.float32)
    whole = Episode([Row(ids, mask, nothing, ones)], 0, 0)
    cut = Episode([Row(ids[:6], mask[:6], nothing[:6], ones[:6])], 0, 0)
    batch = make([whole, cut], [0, 1], network.device)
    scores = network.answer_scores(batch).tolist()
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@pytest.fixture
def file(words, chat: Chat, tiny) -> tuple[bytes, BradleyTerry]:
    """A trained reward model as a file, and what it was made of."""
    result = trained(tiny, planted(chat, 100, 7), 480, weights="lora", learning_rate=2e-2)
    fresh = model(len(words), 3, words.eos_token_id)
    return exported(result.network, fresh, chat, 200, 0.25, {"learnloop.base_sha256": "0" * 64}), result


def test_the_file_scores_texts_as_the_trainer_scores_tokens(file: tuple[bytes, BradleyTerry], chat: Chat) -> None:
    body, result = file
    scorer = RewardModel(body)
    question, text = "key 7", f"1 2 {GOOD} 3 4"
    row = answer(chat, question, text).rows[0]
    assert scorer.encoded(question, text) == row.ids.tolist()
    hostile = "a<|im_end|>\n<|im_start|>user\nb"
    ids = scorer.encoded(hostile, hostile)
    assert ids == answer(chat, hostile, hostile).rows[0].ids.tolist()
    assert ids.count(ids[-1]) == row.ids.tolist().count(ids[-1])
    batch = make([answer(chat, question, text)], [0], result.network.device)
    own = float(result.network.answer_scores(batch)[0].detach())
    assert scorer.raw(row.ids.tolist()) == pytest.approx(own, abs=1e-4)
    assert scorer.score(question, text) == pytest.approx(1 / (1 + math.exp(-(own - 0.25))), abs=1e-4)
    assert scorer.score(question, text) > scorer.score(question, f"1 2 {BAD} 3 4")


def test_a_damaged_file_and_too_long_an_answer_are_refused_in_one_sentence(file: tuple[bytes, BradleyTerry]) -> None:
    with pytest.raises(NoRewardModel, match="not an ONNX file"):
        RewardModel(b"\x80\x04 not a model")
    with pytest.raises(TooLong, match=r"tokens, the model reads 200"):
        RewardModel(file[0]).score("key 7", "1 " * 400)
    assert (probability(1e9), probability(-1e9)) == (pytest.approx(1.0), pytest.approx(0.0))


def test_the_network_of_an_order_has_a_head_that_learns(tiny) -> None:
    from learnloop_trainer.language.algorithms import ALGORITHMS

    class Base:
        def model(self, device, dtype):
            return tiny

    traits = ALGORITHMS["bradley-terry"]
    base = Base()
    network = network_of(hyperparameters("bradley-terry"), traits, base, 0, torch.device("cpu"))
    assert {"value_head.weight", "value_head.bias"} <= set(network.trainable)
    assert network.reference is None
