"""The proof of a reward model: by held-out pairs.

The file is ONNX and needs neither torch nor transformers; see learnloop_common.acting.
"""

import copy
import json
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_api.wire.language import RewardModelProof
from learnloop_api.wire.training import Parity
from learnloop_common.acting.reward_model import CENTRE, CONTEXT, FRAMING, KIND, REWARD_MODEL, TOKENISER, RewardModel
from learnloop_trainer import errors, progress_reporter
from learnloop_trainer.language import lora, messages_to_tokens, rows
from learnloop_trainer.language.algorithms.sft_dpo_bradley_terry import BradleyTerry
from learnloop_trainer.language.network import LanguageNetwork
from learnloop_trainer.training_run import language_proof, language_training, proof, training_loop

LARGEST = 2**31 - 2**24
"""Bytes of a protobuf message, with room for what is not weights."""
OPSET = 17
EXAMPLE = 5  # tokens of what is recorded


class _Scorer(torch.nn.Module):
    """The base model without its words, and the head at the last token."""

    def __init__(self, model: Any, head: torch.nn.Module) -> None:
        super().__init__()
        self.body, self.head = model.base_model, head

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        attention = torch.ones_like(input_ids)
        output = self.body(input_ids=input_ids, attention_mask=attention, use_cache=False)
        score: torch.Tensor = self.head(output.last_hidden_state[:, -1].float()).squeeze(1)
        return score


def exported(
    network: LanguageNetwork,
    fresh: Any,
    chat: messages_to_tokens.Chat,
    context: int,
    centre: float,
    facts: Mapping[str, str],
) -> bytes:
    """The file. `fresh`: the base model, loaded again in float32, which takes what was learned.

    Raises ExportError for a model whose weights do not fit one file, or that cannot be recorded.
    """
    assert network.value_head is not None  # a reward model has one
    _take(network, fresh)
    if sum(part.numel() for part in fresh.base_model.parameters()) * 4 > LARGEST:
        raise errors.ExportError("the model's float32 weights do not fit 2 GiB of ONNX; use a smaller base model")
    # The fused kernels have no ONNX operator; the plain one computes the same.
    fresh.config._attn_implementation = "eager"
    scorer = _Scorer(fresh.cpu().float(), copy.deepcopy(network.value_head).cpu()).eval()
    model = _recorded(scorer)
    properties = {
        **facts,
        KIND: REWARD_MODEL,
        TOKENISER: chat.written(),
        FRAMING: json.dumps(chat.framing()),
        CENTRE: repr(centre),
        CONTEXT: str(context),
    }
    onnx.helper.set_model_props(model, properties)
    body: bytes = model.SerializeToString()
    return body


def _recorded(scorer: _Scorer) -> Any:
    """The scorer as an ONNX model; raises ExportError."""
    example = torch.ones((1, EXAMPLE), dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    scorer,
                    (example,),
                    path,
                    input_names=["input_ids"],
                    output_names=["score"],
                    dynamic_axes={"input_ids": {1: "tokens"}},
                    opset_version=OPSET,
                    dynamo=False,
                )
        except Exception as error:  # the recorder raises what the model's own code does
            problem = f"the reward model cannot be written as ONNX ({str(error)[:300]}); nothing was stored"
            raise errors.ExportError(problem) from None
        return onnx.load(path)


@torch.no_grad()
def _take(network: LanguageNetwork, fresh: Any) -> None:
    """The learned weights, into a base model that has no adapter."""
    parts = dict(fresh.named_parameters())
    if network.adapters is None:
        for name, part in network.model.named_parameters():
            parts[name].copy_(part.float())
        return
    with lora.merged(network.adapters):
        for name, adapter in network.adapters.items():
            parts[f"{name}.weight"].copy_(adapter.get_base_layer().weight.float())


CHANCE = 0.5
Z = 1.959963984540054
MOST_DIFFERENCE = 1e-3
"""Of a score between the trained network and its file: float32 sums in another order. bfloat16: a tenth."""
PARITY_PAIRS = 64
Scores = NDArray[np.float64]


def prove_reward_model(run: training_loop.Run, training: language_training.LanguageTraining) -> proof.Exported:
    """Export the model, and score held-out pairs with it.

    A held-out pair counts 1 where the model prefers what people preferred, 1/2 for equal scores. The baseline: chance.
    """
    spec, learner = run.order.spec, training.learner
    assert isinstance(learner, BradleyTerry)
    parameters, network, pairs = learner.parameters, learner.network, learner.pairs
    run.reporter.phase("evaluating", f"scoring {len(pairs.held_out)} held-out pairs")
    chosen, rejected = scored(network, pairs.held_out, parameters)
    learned = scored(network, pairs.learned, parameters)
    right, before = agreement(chosen, rejected), np.full(len(chosen), CHANCE)
    run.reporter.alive("held-out pairs are scored")
    centre = float(np.concatenate(learned).mean())
    run.reporter.phase("exporting", "writing the reward model as ONNX")
    fresh = training.base.model(torch.device("cpu"))
    body = exported(network, fresh, training.chat, training.context, centre, language_proof.facts(run, training))
    parity = compared(body, pairs.held_out[:PARITY_PAIRS], chosen, rejected, bfloat16=network.bfloat16)
    low, high = wilson(float(right.sum()), len(right))
    progress_reporter.say(
        f"reward model: orders {right.mean():.3f} of {len(right)} held-out pairs as people did, chance is {CHANCE}"
    )
    reward_model = RewardModelProof(
        **language_proof.measured_model(run, training),
        pairs=len(pairs.learned),
        held_out_pairs=len(pairs.held_out),
        held_out_sha256=pairs.sha256,
        accuracy=float(right.mean()),
        accuracy_low=low,
        accuracy_high=high,
        learned_accuracy=float(agreement(*learned).mean()),
        margin=float((chosen - rejected).mean()),
        centre=centre,
    )
    fields = proof.versus(right, before, spec.seed) | {"parity": parity, "reward_model": reward_model}
    return proof.Exported(body, fields)


@torch.no_grad()
def scored(network: LanguageNetwork, pairs: Sequence[rows.Pair], parameters: Parameters) -> tuple[Scores, Scores]:
    """Scores of what was chosen and of what was rejected, in the order of the pairs: [pairs] each."""
    place = {id(pair): number for number, pair in enumerate(pairs)}
    both = np.empty((2, len(pairs)))
    for some in rows.batched_pairs(pairs, parameters.tokens_per_batch):
        episodes = [pair.chosen for pair in some] + [pair.rejected for pair in some]
        scores = network.answer_scores(rows.make(episodes, range(len(episodes)), network.device)).cpu().numpy()
        numbers = [place[id(pair)] for pair in some]
        both[0, numbers], both[1, numbers] = scores[: len(some)], scores[len(some) :]
    return both[0], both[1]


def agreement(chosen: Scores, rejected: Scores) -> Scores:
    """1 where the model prefers as people did, 1/2 for equal scores, else 0: [pairs]."""
    return np.where(chosen == rejected, 0.5, (chosen > rejected).astype(np.float64))


def compared(body: bytes, pairs: Sequence[rows.Pair], chosen: Scores, rejected: Scores, *, bfloat16: bool) -> Parity:
    """Does the file say what the trained network says? Raises ExportError where it does not."""
    model = RewardModel(body)
    most, agreed = 0.0, 0
    for number, pair in enumerate(pairs):
        again = [
            model.raw(answer.rows[-1].ids[: _end(answer.rows[-1].sampled)].tolist())
            for answer in (pair.chosen, pair.rejected)
        ]
        gaps = abs(again[0] - chosen[number]), abs(again[1] - rejected[number])
        most = max(most, *gaps)
        agreed += (again[0] > again[1]) == (chosen[number] > rejected[number])
    allowed = 0.1 if bfloat16 else MOST_DIFFERENCE
    if not most <= allowed:
        raise errors.ExportError(
            f"the exported reward model differs from the trained one by {most:.3g} over {2 * len(pairs)} answers, "
            f"{allowed:g} is allowed; nothing was stored"
        )
    return Parity(
        observations=2 * len(pairs),
        recorded=2 * len(pairs),
        max_abs_difference=float(most),
        action_agreement=agreed / len(pairs),
        passed=True,
    )


def _end(sampled: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(sampled)[-1]) + 1


def wilson(wins: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, JASA 22, 1927)."""
    rate, square = wins / count, Z * Z / count
    middle, spread = rate + square / 2, Z * math.sqrt(rate * (1 - rate) / count + square / (4 * count))
    return max(0.0, (middle - spread) / (1 + square)), min(1.0, (middle + spread) / (1 + square))
