"""The key-value cache of sampling, whose rows share prefixes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


def _empty_cache(config: Any) -> DynamicCache | None:
    """An empty cache for a model of this configuration.

    None where some layer does not keep all keys and values, as with sliding windows and linear attention: rows of
    those cannot be put together again.
    """
    try:
        cache = DynamicCache(config=config)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    return cache


# Prompts that begin alike are read to where they part, once; equal ones are read as one; and the next turn of a
# conversation begins where the model stopped reading. What it makes of a token depends on the tokens before it alone,
# so the answers are the same up to the rounding of sums.

Ids = Sequence[int]
WORTH = 16
"""Shorter common beginnings are not worth a call of the model of their own."""


@dataclass(slots=True)
class Reading:
    """Rows that the model has read, [rows] conversations in [columns] places.

    Attributes:
        cache: their keys and values, as the transformers library keeps them.
        mask: int64 [rows, columns], 1 at tokens; what is 0 holds nothing.
        logits: float [rows, words], of the next token.
    """

    cache: Any
    mask: torch.Tensor
    logits: torch.Tensor

    def select(self, rows: torch.Tensor) -> None:
        """Go on with these rows alone; the same one may be named twice."""
        self.cache.reorder_cache(rows)
        self.mask, self.logits = self.mask[rows], self.logits[rows]

    def read(self, model: Any, tokens: torch.Tensor, mask: torch.Tensor) -> None:
        """Read [rows, n] further tokens, of which `mask` [rows, n] says whether there is one."""
        self.mask = torch.cat((self.mask, mask), dim=1)
        positions = (self.mask.cumsum(1) - 1)[:, -tokens.shape[1] :].clamp_min(0)
        output = model(
            input_ids=tokens,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache, self.logits = output.past_key_values, output.logits[:, -1]


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that ended at the same time: keys and values of each layer, [rows, heads, columns, width]."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    mask: torch.Tensor

    @property
    def columns(self) -> int:
        return self.mask.shape[1]


@dataclass(slots=True)
class PrefixCache:
    """Reads prompts, and keeps what was read of one turn for the next one. It holds for one state of the weights."""

    model: Any
    _blocks: list[_Block] = field(default_factory=list)
    _rows: dict[int, tuple[Ids, int, int]] = field(default_factory=dict)
    _reusable: bool = False

    def read(self, prompts: Sequence[Ids]) -> Reading:
        """Logits after each of the prompts; rows that were kept before are used up."""
        blocks_before, self._rows = self._rows, {}
        blocks, self._blocks = self._blocks, []
        places = _continued(prompts, blocks_before)
        if places is not None:
            reading = self._gathered(blocks, [place for _, place in places])
            self._read(reading, [prompt[read:] for prompt, (read, _) in zip(prompts, places, strict=True)])
            return reading
        distinct = list(dict.fromkeys(map(tuple, prompts)))
        reading = self._begun(distinct)
        if len(distinct) < len(prompts):
            number = {prompt: at for at, prompt in enumerate(distinct)}
            reading.select(torch.tensor([number[tuple(prompt)] for prompt in prompts], device=reading.mask.device))
        return reading

    def keep(self, reading: Reading, rows: Sequence[int], conversations: Sequence[tuple[int, Ids]]) -> None:
        """Keep rows whose turn has ended. `conversations`: of each its place among the prompts, and the tokens read."""
        if not rows or not self._reusable:
            return
        at = torch.tensor(rows, device=reading.mask.device)
        layers = [(layer.keys[at], layer.values[at]) for layer in reading.cache.layers]
        for row, (place, ids) in enumerate(conversations):
            self._rows[place] = (ids, len(self._blocks), row)
        self._blocks.append(_Block(layers, reading.mask[at]))

    def _begun(self, prompts: Sequence[Ids]) -> Reading:
        device = next(self.model.parameters()).device
        cache = _empty_cache(self.model.config)
        self._reusable = cache is not None
        reading = Reading(cache, torch.zeros(1, 0, dtype=torch.int64, device=device), torch.empty(0))
        shared = _shared(prompts) if len(prompts) > 1 and self._reusable else 0
        if shared >= WORTH:
            self._read(reading, [prompts[0][:shared]])
            reading.cache.batch_repeat_interleave(len(prompts))
        else:
            shared = 0
        reading.mask = reading.mask.expand(len(prompts), -1)
        self._read(reading, [prompt[shared:] for prompt in prompts])
        return reading

    def _read(self, reading: Reading, rests: Sequence[Ids]) -> None:
        """The rests end together: what is shorter has empty places before it."""
        longest, device = max(map(len, rests)), reading.mask.device
        tokens = torch.tensor([[0] * (longest - len(rest)) + list(rest) for rest in rests], device=device)
        mask = torch.tensor([[0] * (longest - len(rest)) + [1] * len(rest) for rest in rests], device=device)
        reading.read(self.model, tokens, mask)

    def _gathered(self, blocks: Sequence[_Block], places: Sequence[tuple[int, int]]) -> Reading:
        """One batch of the rows (block, row), without the places that hold nothing in any of them."""
        begins, begin = list[int](), 0
        for block in blocks:
            begins.append(begin)
            begin += len(block.mask)
        columns = max(block.columns for block in blocks)
        mask = torch.cat([pad(block.mask, (columns - block.columns, 0)) for block in blocks])
        rows = torch.tensor([begins[block] + row for block, row in places], device=mask.device)
        mask = mask[rows]
        used = mask.any(0)
        cache: Any = _empty_cache(self.model.config)
        for number in range(len(blocks[0].layers)):
            keys, values = (
                torch.cat([pad(block.layers[number][part], (0, 0, columns - block.columns, 0)) for block in blocks])
                for part in (0, 1)
            )
            cache.update(keys[rows][:, :, used], values[rows][:, :, used], number)
        return Reading(cache, mask[:, used], torch.empty(0))


def _shared(prompts: Sequence[Ids]) -> int:
    """How many first tokens all have in common, and each has one more."""
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))  # of sorted sequences these differ soonest
    most = min(map(len, prompts)) - 1
    return next((at for at in range(most) if first[at] != last[at]), most)


def _continued(
    prompts: Sequence[Ids], rows: dict[int, tuple[Ids, int, int]]
) -> list[tuple[int, tuple[int, int]]] | None:
    """Of each prompt how much of it was read, and in which block and row; None where one was not begun before.

    Conversations keep their order from turn to turn, and some end.
    """
    places: list[tuple[int, tuple[int, int]]] = []
    waiting = iter([rows[place] for place in sorted(rows)])
    for prompt in prompts:
        for ids, block, row in waiting:
            if len(ids) < len(prompt) and list(prompt[: len(ids)]) == list(ids):
                places.append((len(ids), (block, row)))
                break
        else:
            return None
    return places
