"""Keys and values of a conversation that grows by a token at a time, without a copy of all of them for each token."""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

SPARE = 32
"""Columns of room, in tokens: what is read before was copied once for so many."""


class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer's keys and values [rows, heads, columns, width] as the first columns of larger tensors."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add columns, and return all; see the library's Cache."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room = tuple(torch.empty(0) for _ in range(2))
        before, rows = self.get_seq_length(), key_states.shape[0]
        after = before + key_states.shape[2]
        if self._room[0].dim() < 4 or self._room[0].shape[0] != rows or self._room[0].shape[2] < after:
            olds = (self.keys, self.values) if before else (None, None)
            self._room = tuple(
                _larger(new, old, after + SPARE) for new, old in zip((key_states, value_states), olds, strict=True)
            )
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, before:after] = new
        self.keys, self.values = (room[:, :, :after] for room in self._room)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Name each row so many times; see the library's Cache."""
        self._rows(lambda room: room.repeat_interleave(repeats, dim=0))

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keep these rows; see the library's Cache."""
        self._rows(lambda room: room[beam_idx])

    def _rows(self, change: Any) -> None:
        columns = self.get_seq_length()
        if columns:
            self._room = tuple(change(room) for room in self._room)
            self.keys, self.values = (room[:, :, :columns] for room in self._room)


def growing_cache(config: Any) -> DynamicCache | None:
    """An empty cache for a model of this configuration.

    None where some layer does not keep all keys and values, as with sliding windows and linear attention: rows of
    those cannot be put together anew.
    """
    try:
        cache = DynamicCache(config=config)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    cache.layers = [GrowingLayer() for _ in cache.layers]  # type: ignore[no-untyped-call]
    return cache


def _larger(new: torch.Tensor, old: torch.Tensor | None, columns: int) -> torch.Tensor:
    room = new.new_zeros(new.shape[0], new.shape[1], columns, new.shape[3])
    if old is not None:
        room[:, :, : old.shape[2]] = old
    return room
