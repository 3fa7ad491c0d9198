"""A reward model as one ONNX file, which says of itself how a question and an answer become its tokens.

Input `input_ids` int64 [1, tokens], output `score` float32 [1]. Its metadata (all text):

    learnloop.kind             reward-model
    learnloop.base_sha256      digest of the base model's folder it was trained from
    learnloop.template_sha256  digest of the chat template's text
    learnloop.tokeniser        tokenizer.json
    learnloop.framing          JSON: what is written before a question, between it and its answer, and after that
    learnloop.centre           mean score of the answers it learned from
    learnloop.context_length   tokens at most
"""

import json
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from learnloop_common.chat import ControlTokens, pieces

KIND, REWARD_MODEL = "learnloop.kind", "reward-model"
BASE, TEMPLATE = "learnloop.base_sha256", "learnloop.template_sha256"
TOKENISER, FRAMING = "learnloop.tokeniser", "learnloop.framing"
CENTRE, CONTEXT = "learnloop.centre", "learnloop.context_length"
LARGEST = 30.0
"""Scores further from the centre are as good as certain; exp of more would only overflow."""


class NoRewardModel(ValueError):
    """The file is none, or is damaged; one sentence says what is wrong."""


class TooLong(ValueError):
    """Question and answer have more tokens than the model reads."""


class RewardModel:
    """Scores answers, on the CPU."""

    def __init__(self, body: bytes, threads: int = 1) -> None:
        """Reads and checks the file; raises NoRewardModel, or MemoryError.

        A reward model is one file. ONNX lets a model name other files for its weights: there are none.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 4
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
        try:
            # The fallback of Python tells of itself on standard output, which may be somebody's protocol.
            self._session = onnxruntime.InferenceSession(
                body, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:  # onnxruntime's own errors have no common class
            _no_memory(error)
            raise NoRewardModel(f"it is not an ONNX file ({' '.join(str(error).split())[:200]})") from None
        self.facts = dict(self._session.get_modelmeta().custom_metadata_map)
        if self.facts.get(KIND) != REWARD_MODEL:
            raise NoRewardModel(f"it says {KIND} {self.facts.get(KIND, '(nothing)')!r}, not {REWARD_MODEL!r}")
        if [item.name for item in self._session.get_inputs()] != ["input_ids"]:
            raise NoRewardModel("its inputs are not input_ids alone")
        try:
            self.before, self.between, self.after = map(str, json.loads(self.facts[FRAMING]))
            self.centre, self.context = float(self.facts[CENTRE]), int(self.facts[CONTEXT])
        except (KeyError, ValueError, TypeError) as error:
            raise NoRewardModel(f"its metadata lack framing, centre or context length ({error})") from None
        if not math.isfinite(self.centre):
            raise NoRewardModel(f"its centre {self.centre} is not a finite number")
        if self.context < 1:
            raise NoRewardModel(f"its context length {self.context} is less than one token")
        self._tokeniser: Any = None

    def raw(self, ids: Sequence[int]) -> float:
        """The score of these tokens, of any size.

        Raises TooLong, NoRewardModel where it is not a number, or MemoryError.
        """
        if len(ids) > self.context:
            raise TooLong(f"question and answer have {len(ids)} tokens, the model reads {self.context}")
        try:
            (score,) = self._session.run(["score"], {"input_ids": np.asarray([ids], dtype=np.int64)})
        except Exception as error:  # onnxruntime's own errors have no common class
            _no_memory(error)
            raise NoRewardModel(f"it cannot be run ({' '.join(str(error).split())[:200]})") from None
        try:
            value = float(np.asarray(score).reshape(-1)[0])
        except (IndexError, TypeError, ValueError):  # empty, a list or a word: the file says what it likes
            raise NoRewardModel("its score is not a number") from None
        if not math.isfinite(value):
            raise NoRewardModel("its score is not a finite number")
        return value

    def encoded(self, question: str, answer: str) -> list[int]:
        """Both as the trainer encodes them: all that comes before the answer as one text, the answer as another.

        Raises NoRewardModel without a usable tokeniser.
        """
        if self._tokeniser is None:
            from tokenizers import Tokenizer

            try:
                self._tokeniser = Tokenizer.from_str(self.facts[TOKENISER])
            except Exception as error:  # tokenizers raises Exception itself
                raise NoRewardModel(f"its tokeniser cannot be read ({str(error)[:200]})") from None
        try:
            controls = ControlTokens(self._tokeniser.get_added_tokens_decoder().values())
            wanted, message = controls.marked(
                [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            )
            texts = f"{self.before}{wanted['content']}{self.between}", f"{message['content']}{self.after}"
            encode = self._tokeniser.encode
            encoded = (encode(piece, add_special_tokens=False) for text in texts for piece in pieces(text))
            return [word for one in encoded for word in one.ids]
        except Exception as error:  # tokenizers raises Exception itself
            raise NoRewardModel(f"its tokeniser cannot be used ({str(error)[:200]})") from None

    def score(self, question: str, answer: str) -> float:
        """Probability that people prefer this answer to a middling one of those that were learned from, 0 to 1.

        Raises TooLong, NoRewardModel, or MemoryError.
        """
        return probability(self.raw(self.encoded(question, answer)) - self.centre)


def _no_memory(error: Exception) -> None:
    """onnxruntime says in words only that it got no memory."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error) or "allocate memory" in str(error):
        raise MemoryError from None


def probability(margin: float) -> float:
    """1 / (1 + exp(-margin)): by the law of comparisons, of being preferred."""
    return 1.0 / (1.0 + math.exp(-min(LARGEST, max(-LARGEST, margin))))
