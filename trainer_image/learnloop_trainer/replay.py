"""Replay buffers.

Schaul, Quan, Antonoglou & Silver (2016), arXiv 1511.05952, section 3.3, equation 1 (proportional variant) and
appendix B.2.1; with N transitions of priority p_i:

    P(i) = p_i^alpha / sum_k p_k^alpha,    p_i = |delta_i| + epsilon,    w_i = (N P(i))^-beta / max_j w_j

Deviations: the largest weight is taken over the batch, as in the authors' code; a new transition gets the largest
priority seen so far. Every parent is the sum of its two children and never a running total, so nothing drifts and a
tree rebuilt from its leaves is equal to the last bit.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.spaces import Observations, Step

EPSILON = 1e-6
Floats64 = NDArray[np.float64]
Indices = NDArray[np.int64]


class SumTree:
    """Non-negative numbers with their sum, in a complete binary tree; node i has the children 2i and 2i + 1."""

    def __init__(self, capacity: int) -> None:
        self._depth = max(0, (capacity - 1).bit_length())
        self._first = 1 << self._depth
        self.capacity = capacity
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def values(self, leaves: Indices) -> Floats64:
        return np.asarray(self._nodes[self._first + leaves])

    def put(self, leaves: Indices, values: Floats64) -> None:
        """Set leaves [n]; of a leaf named twice the last value counts. O(n log capacity)."""
        node = leaves + self._first
        self._nodes[node] = values
        for _ in range(self._depth):
            node = node >> 1  # duplicates compute the same sum twice, which costs less than finding them
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, mass: Floats64) -> Indices:
        """For each mass in [0, total) the leaf whose interval of the running sum contains it."""
        node, left = np.ones(len(mass), dtype=np.int64), mass.copy()
        for _ in range(self._depth):
            node = 2 * node
            lower = self._nodes[node]
            right = (left >= lower) & (self._nodes[node + 1] > 0)  # rounding never leads to an empty branch
            left -= lower * right
            node += right
        return node - self._first

    def leaves(self) -> Floats64:
        """All leaves [capacity]. A copy."""
        return self._nodes[self._first : self._first + self.capacity].copy()

    def fill(self, leaves: Floats64) -> None:
        """Replace all leaves; raises ValueError when there are not `capacity` of them, all finite and not negative."""
        if leaves.shape != (self.capacity,) or not (np.isfinite(leaves) & (leaves >= 0)).all():
            raise ValueError(f"priorities of shape {leaves.shape} do not fit {self.capacity} transitions")
        self._nodes[self._first : self._first + self.capacity] = leaves
        for level in range(self._depth - 1, -1, -1):
            node = np.arange(1 << level, 2 << level)
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]


class Priorities:
    """Priorities of all ranks' transitions, equal on every rank: leaf = slot * environments + environment."""

    def __init__(self, environments: int, length: int, exponent: float) -> None:
        """`length` slots of each environment, none of them filled; `exponent` is the paper's alpha."""
        self._environments, self._exponent = environments, exponent
        self.tree = SumTree(environments * length)
        self.largest = 1.0  # with the exponent applied

    def added(self, slot: int) -> None:
        """All environments stored a transition in this slot."""
        leaves = slot * self._environments + np.arange(self._environments)
        self.tree.put(leaves, np.full(self._environments, self.largest))

    def sample(self, draws: Floats64) -> Indices:
        """Leaves for uniform draws [n] in (0, 1), one from each of n equal parts of the total."""
        count = len(draws)
        return self.tree.find((np.arange(count) + draws) * (self.tree.total / count))

    def weights(self, leaves: Indices, filled: int, beta: float) -> NDArray[np.float32]:
        """Importance weights [n] in (0, 1]; `filled` transitions are stored."""
        chance = self.tree.values(leaves) / self.tree.total
        weights = (filled * chance) ** -beta
        return np.asarray(weights / weights.max(), dtype=np.float32)

    def learned(self, leaves: Indices, errors: NDArray[np.float32]) -> None:
        """Take the newest temporal-difference errors as priorities."""
        values = (np.abs(errors.astype(np.float64)) + EPSILON) ** self._exponent
        self.largest = max(self.largest, float(values.max()))
        self.tree.put(leaves, values)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Leaves and the largest priority. Copies."""
        return {"priorities": self.tree.leaves(), "priorities.largest": np.asarray([self.largest])}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take up a saved state; raises KeyError or ValueError when it does not fit."""
        self.tree.fill(np.asarray(state["priorities"], dtype=np.float64))
        self.largest = float(state["priorities.largest"][0])


# Batches have a place, too: of as many samples they are the same tensors again, with the next batch in them.

MAX_ROOMS = 64  # batch sizes whose places are kept; ranks see a few different ones


@dataclass(frozen=True, slots=True)
class Transitions:
    """A batch for one update; leading axis [samples]."""

    observation: torch.Tensor
    successor: torch.Tensor
    action: torch.Tensor  # int64 [samples], or float32 [samples, dimensions]
    reward: torch.Tensor  # [samples], of teams [samples, agents]
    alive: torch.Tensor  # weight of the future: 1.0 unless the episode terminated here


@dataclass(frozen=True, slots=True)
class _Room:
    """Buffers of batches of one size: rows [samples, fields], and on the CPU the batch itself."""

    rows: NDArray[np.float32]
    tensor: torch.Tensor  # the same memory
    batch: Transitions  # views of it, but for discrete actions
    chosen: torch.Tensor  # float32 [samples], where those are read


class Replay:
    """The rings of environments `members`. They advance in lockstep, so position and fill are single numbers."""

    def __init__(
        self,
        members: range,
        length: int,
        observations: int,
        *,
        dimensions: int = 0,
        rewards: int = 1,
        environments: int | None = None,
    ) -> None:
        """Room for `length` transitions of each environment; the oldest are overwritten.

        `environments` of all ranks together: where these are all of them, `pick` need not look for others'.
        `dimensions`: numbers in an action; 0 for discrete actions. `rewards`: numbers in a reward, more than one for a
        team.
        """
        self.members, self.length = members, length
        self.position = self.filled = 0
        self._discrete = not dimensions
        self._widths = [observations, observations, dimensions or 1, rewards, 1]
        edges = np.cumsum([0, *self._widths]).tolist()
        names = ("observation", "successor", "action", "reward", "alive")
        self._columns = {name: slice(*edges[i : i + 2]) for i, name in enumerate(names)}
        # float32 throughout: action numbers stay exact up to 2^24.
        self._records = np.zeros((len(members), length, edges[-1]), dtype=np.float32)
        self._complete = environments == len(members)
        self._rooms: dict[int, _Room] = {}

    def add(self, observation: Observations, action: NDArray[np.generic], step: Step) -> None:
        record, columns = self._records[:, self.position], self._columns
        record[:, columns["observation"]] = observation.reshape(len(observation), -1)
        record[:, columns["successor"]] = step.successor.reshape(len(observation), -1)
        record[:, columns["action"]] = action.reshape(len(action), -1)
        record[:, columns["reward"]] = step.reward.reshape(len(action), -1)
        record[:, columns["alive"]] = ~step.terminated[:, None]
        self.position = (self.position + 1) % self.length
        self.filled = min(self.filled + 1, self.length)

    def learned_from(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Observations and rewards of all transitions here, [environments, transitions, numbers] each."""
        records = self._records[:, : self.filled]
        return records[..., self._columns["observation"]], records[..., self._columns["reward"]]

    def local_mask(self, members: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask of these environments whose rings are here; the others' are on other ranks."""
        return np.asarray((members >= self.members.start) & (members < self.members.stop))

    def pick(self, members: NDArray[np.int64], slots: NDArray[np.int64], device: torch.device) -> Transitions:
        """Those of the transitions (member, slot) that these rings hold; the rest belong to other ranks.

        The batch is overwritten by the next one of as many samples.
        """
        if not (self._complete or self._whole(members)):
            local = self.local_mask(members)
            members, slots = members[local], slots[local]
        start = (members - self.members.start) * self.length
        records, room = self._records.reshape(-1, self._records.shape[2]), self._room(len(members))
        records.take(start + slots, axis=0, out=room.rows, mode="clip")  # the other modes would copy once more
        if device.type != "cpu":
            return self._cut(room.tensor.to(device))
        if self._discrete:
            room.batch.action.copy_(room.chosen)
        return room.batch

    def _room(self, count: int) -> _Room:
        if (room := self._rooms.get(count)) is not None:
            return room
        if len(self._rooms) >= MAX_ROOMS:
            self._rooms.clear()
        rows = np.empty((count, self._records.shape[2]), dtype=np.float32)
        with torch.inference_mode(False):  # else autograd could not use them later
            tensor = torch.from_numpy(rows)
            chosen = tensor[:, self._columns["action"].start]
            self._rooms[count] = _Room(rows, tensor, self._cut(tensor), chosen)
        return self._rooms[count]

    def _cut(self, rows: torch.Tensor) -> Transitions:
        observation, successor, action, reward, alive = torch.split_with_sizes(rows, self._widths, 1)
        if self._discrete:
            action = action.squeeze(1).long()
        return Transitions(observation, successor, action, reward.squeeze(1), alive.squeeze(1))

    def _whole(self, members: NDArray[np.int64]) -> bool:
        return not len(members) or bool(members.min() >= self.members.start and members.max() < self.members.stop)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The filled part of the rings, axis 0 = environment. Copies."""
        return {"replay": self._records[:, : self.filled].copy()}

    def restore(self, state: dict[str, NDArray[np.generic]], position: int, filled: int) -> None:
        """Take up saved rings; raises KeyError or ValueError when they do not fit."""
        self._records[:, :filled] = state["replay"]
        self.position, self.filled = position, filled
