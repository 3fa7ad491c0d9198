"""A language network: what it says of tokens, with and without its adapter, padded and alone."""

import numpy as np
import pytest
import torch

from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Purpose, uniforms
from learnloop_trainer.language import lora, losses
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.language.rows import Episode, Sampled, batches, make, rows_of
from learnloop_trainer.language.sampler import Limits, Sampler

RANDOM = np.random.default_rng(5)
LIMITS = Limits(1.0, {2}, 24, 96)


def episodes(network: LanguageNetwork, count: int, temperature: float = 1.0) -> list[Episode]:
    """Conversations of one sampled turn each, of different lengths."""
    prompts = [RANDOM.integers(3, 40, 3 + number % 5).tolist() for number in range(count)]
    limits = Limits(temperature, {2}, 24, 96)
    with network.sampling() as model:
        numbers = np.arange(count)
        turns = Sampler(model)(prompts, lambda place: uniforms(Purpose.ACTION, 0, place, numbers), limits)
    return [Episode(rows_of([turn])[0], 0.0, at) for at, turn in enumerate(turns) if turn is not None]


def adapted(model, *, moved: bool = True, **options) -> LanguageNetwork:
    """With an adapter whose B is not 0."""
    network = LanguageNetwork(model, lora.attach(model, lora.LAYERS, 4, 8.0, 1), **options)
    if moved:
        network.vector.add_(torch.from_numpy(RANDOM.normal(0, 0.02, len(network.vector)).astype(np.float32)))
    return network


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_trainer_gives_sampled_tokens_the_log_probabilities_they_were_drawn_with(tiny, temperature):
    network = adapted(tiny)
    drawn = episodes(network, 12, temperature)
    batch = make(drawn, range(len(drawn)), network.device)
    gap = (network.score(batch).log_prob - batch.behaviour).abs().max()
    assert gap.item() < 2e-5


def test_an_adapter_switched_off_is_the_base_model_to_the_bit(tiny) -> None:
    drawn = episodes(LanguageNetwork(tiny), 6)
    plain = LanguageNetwork(tiny)
    batch = make(drawn, range(6), plain.device)
    before = plain.score(batch).log_prob.detach()
    network = adapted(tiny)
    assert torch.equal(network.score_base(batch), before)
    assert not torch.allclose(network.score(batch).log_prob, before, atol=1e-3)


def test_what_an_episode_teaches_does_not_depend_on_padding_or_on_its_neighbours(tiny) -> None:
    network = adapted(tiny)
    drawn = episodes(network, 9)
    gradients = []
    for budget in (64, 100_000):
        for batch in batches(drawn, range(9), budget, network.device):
            network.score(batch).log_prob.sum().backward()
        gradients.append(network.gradient.clone())
        network.gradient.zero_()
    assert gradients[0].abs().max() > 0
    assert torch.allclose(*gradients, atol=1e-4, rtol=1e-4)


def test_what_the_world_said_is_context_and_gets_no_gradient(tiny) -> None:
    network = LanguageNetwork(tiny)
    rows, _ = rows_of(
        [Sampled([3, 4, 5], [6, 2], [-1.0, -1.0]), Sampled([3, 4, 5, 6, 2, 7, 8, 9], [10, 2], [-1.0] * 2)]
    )
    batch = make([Episode(rows, 1.0, 0)], [0], network.device)
    assert batch.column.tolist() == [3, 4, 8, 9]
    calls = []
    hook = tiny.get_output_embeddings().register_forward_pre_hook(
        lambda part, given: calls.append(given[0].shape[:-1].numel())
    )
    network.score(batch)
    hook.remove()
    assert calls == [4]  # no logits are made for anything else, so nothing else can be learned


def test_log_probabilities_stay_float32_where_layers_compute_in_bfloat16(tiny) -> None:
    network = adapted(tiny, bfloat16=True)
    drawn = episodes(adapted(tiny.__class__(tiny.config)), 4)
    batch = make(drawn, range(4), network.device)
    scores = network.score(batch)
    assert scores.log_prob.dtype == torch.float32
    total = torch.exp(scores.log_prob).sum()
    assert float(total) > 0
    scores.log_prob.sum().backward()
    assert network.gradient.dtype == torch.float32
    assert torch.isfinite(network.gradient).all()


def test_the_gradient_is_that_of_cross_entropy_over_the_whole_sequence(tiny) -> None:
    drawn = episodes(LanguageNetwork(tiny), 5)
    network = LanguageNetwork(tiny)
    batch = make(drawn, range(5), network.device)
    losses.negative_log_likelihood(network.score(batch).log_prob, torch.ones(len(batch.row))).backward()
    labels = torch.full_like(batch.ids, -100)
    labels[batch.row, batch.column] = batch.ids[batch.row, batch.column]
    logits = tiny(input_ids=batch.ids, attention_mask=batch.attention).logits
    whole = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), reduction="sum"
    )
    slopes = torch.autograd.grad(whole, list(network.trainable.values()))
    wanted = torch.cat([slope.reshape(-1) for slope in slopes])
    assert float(wanted.abs().max()) > 1
    assert torch.allclose(network.gradient, wanted, atol=1e-4, rtol=1e-4)


def test_an_adapter_comes_back_from_its_file_and_a_foreign_one_is_refused(tiny) -> None:
    network = adapted(tiny)
    saved = lora.arrays(network.adapters)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in saved
    before = network.digest()
    network.vector.zero_()
    lora.load(network.adapters, saved)
    assert network.digest() == before
    with pytest.raises(ValueError, match="is missing"):
        lora.load(network.adapters, dict(list(saved.items())[1:]))
    with pytest.raises(ValueError, match="of another adapter"):
        lora.load(network.adapters, saved | {"other": np.zeros(1)})
    name = next(iter(saved))
    with pytest.raises(ValueError, match="has shape"):
        lora.load(network.adapters, saved | {name: np.zeros((1, 1))})


def test_layers_the_model_does_not_have_are_refused_with_those_it_has(tiny) -> None:
    with pytest.raises(ConfigError, match=r"names no linear layers.*q_proj"):
        lora.attach(tiny, ["query"], 4, 8.0, 0)


def test_a_conversation_is_sampled_the_same_alone_and_among_others(tiny) -> None:
    prompts = [RANDOM.integers(3, 40, 4 + number).tolist() for number in range(5)]
    numbers = np.arange(5)
    together = Sampler(tiny)(prompts, lambda place: uniforms(Purpose.ACTION, 0, place, numbers), LIMITS)
    for at, prompt in enumerate(prompts):
        alone = Sampler(tiny)([prompt], lambda place, at=at: uniforms(Purpose.ACTION, 0, place, at), LIMITS)[0]
        assert alone.sampled_ids == together[at].sampled_ids


def test_a_turn_ends_at_a_stop_at_the_limit_and_at_the_context(tiny) -> None:
    numbers = np.zeros(1)
    every = set(range(tiny.config.vocab_size))
    one = Sampler(tiny)([[5]], lambda place: numbers, Limits(1.0, every, 24, 96))[0]
    assert (len(one.sampled_ids), one.complete) == (1, True)
    limited = Sampler(tiny)([[5]], lambda place: numbers, Limits(1.0, (), 4, 96))[0]
    assert (len(limited.sampled_ids), limited.complete) == (4, False)
    short = Sampler(tiny)([[5] * 10, [5] * 8], lambda place: np.zeros(2), Limits(1.0, (), 24, 10))
    assert short[0] is None
    assert len(short[1].sampled_ids) == 2


def test_what_the_value_head_expects_needs_no_logits(tiny) -> None:
    network = adapted(tiny, value_head=True)
    batch = make(episodes(network, 5), range(5), network.device)
    scored = network.score(batch).value
    assert scored.abs().max() > 0
    network.model.get_output_embeddings = None  # a request for logits would fail
    assert torch.equal(network.values(batch), scored.detach())
    with pytest.raises(RuntimeError, match="no value head"):
        LanguageNetwork(network.model).values(batch)
