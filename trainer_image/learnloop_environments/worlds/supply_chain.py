"""Supply chain: keep two warehouses stocked for up to 30 stores whose demand moves with the season.

All stores share the chain's season, so their swings add up. Beside it every store holds sales of its own, unannounced:
each wants SALE units more for a period. A store's part of the usual demand falls with the number of stores, what it
wants at once does not: the more stores, the less steady the demand, at the same mean.

Five decisions a period, each in [-1, 1]. Two are orders, from the distant, cheap supplier (four periods away) and from
the near, dear one (one period). The others are the express share of the distant orders (two periods sooner), the first
warehouse's share of all orders, and the price (0.8 to 1.2 of the list price). Suppliers fail for some periods at a
time: what is ordered from them meanwhile is paid for and lost. The reward balances the specification's objectives with
its weights:

    -0.4 cost / reference + 0.4 service level + 0.2 turnover,   cost = inventory + transportation + ordering

Service is sales by the demand at list price: demand that a high price drives away is not served. Turnover is sales by
average stock, at most 1. Seen: stock, what is under way, demand, forecasts, working suppliers, risk and time.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations
from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Floats64, Level, Outcome, Simulation, box

STORES, HOUSES, LEAD, FORECAST = 30, 2, 4, 3
SALES, SALE, MANY = 0.03, 6.0, 6  # chance a store and period; units; in a warehouse's stores at once
LARGEST_ORDER, MEAN_DEMAND, OUTAGE = 20.0, 10.0, 5  # units a period; periods
HOLDING, CHEAP, DEAR, FREIGHT, EXPRESS, ELASTICITY = 0.05, 1.0, 1.4, 0.1, 0.3, 1.5
REFERENCE = HOUSES * MEAN_DEMAND * (CHEAP + FREIGHT + HOLDING)  # of one period that runs smoothly


class SupplyChain(Simulation):
    """n chains of two suppliers, two warehouses and their stores."""

    observations = HOUSES * (1 + LEAD + 1 + FORECAST) + 4
    actions = 5
    bounds = box(-1.0, 1.0, 5)
    PARAMETERS: ClassVar[Mapping[str, float]] = {
        "disruptions": 0.1,  # tenfold chance a period that a supplier fails
        "complexity": 5,  # stores
        "noise": 0.1,  # of demand
        "aim": 0.0,  # mean reward of a successful episode
        "max_steps": 60,
    }
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("easy", 0.8),
        Level("medium", 0.8, {"disruptions": 0.3, "complexity": 15}),
        Level("hard", 0.8, {"disruptions": 0.5, "complexity": 30}),
    )

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        body = {name: np.zeros(count) for name in ("phase", "season", "total")}
        body |= {name: np.zeros((count, HOUSES)) for name in ("usual", "stores", "stock", "demand", "outage")}
        return body | {"coming": np.zeros((count, HOUSES, LEAD))}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        body = self.body
        draws = self._draws(seeds, 2)
        body["phase"][which], body["season"][which] = 2 * math.pi * draws[:, 0], 8.0 + 16.0 * draws[:, 1]
        # Stores belong to the warehouses by turns.
        stores = (self.parameter["complexity"][which, None] + np.arange(HOUSES - 1, -1, -1)) // HOUSES
        body["stores"][which], body["usual"][which] = stores, MEAN_DEMAND - SALES * SALE * stores
        body["stock"][which], body["coming"][which] = 2 * MEAN_DEMAND, 0.0
        body["outage"][which] = body["total"][which] = 0.0
        body["demand"][which] = self._expected(0)[which]

    def _expected(self, ahead: int) -> Floats64:
        """Demand of each warehouse at list price, `ahead` periods from now, without sales and noise [n, 2]."""
        body = self.body
        wave = np.sin(2 * math.pi * (self.age + ahead) / np.maximum(body["season"], 1.0) + body["phase"])
        return np.asarray(body["usual"] * (1.0 + 0.5 * wave)[:, None])

    def _sales(self) -> Floats64:
        """What the sales of this period's stores add to the demand of each warehouse [n, 2].

        How many there are is Poisson distributed, as for many stores with a small chance each, cut off at MANY.
        """
        rate = SALES * self.body["stores"]
        chance = self._chance(2 * HOUSES + 2 + HOUSES)[:, -HOUSES:]
        term = np.exp(-rate)
        held, count = np.zeros_like(rate), term
        for number in range(1, MANY + 1):
            held += chance > count
            term = term * rate / number
            count = count + term
        return SALE * held

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body = self.body
        share = (actions + 1.0) / 2.0
        stock = body["stock"] + body["coming"][:, :, 0]
        coming = np.concatenate((body["coming"][:, :, 1:], np.zeros((len(stock), HOUSES, 1))), axis=2)
        working = body["outage"] == 0
        paid = LARGEST_ORDER * HOUSES * share[:, :2]  # distant, near [n, 2]
        ordered = paid * working
        split = np.stack((share[:, 3], 1.0 - share[:, 3]), axis=1)
        express = ordered[:, 0] * share[:, 2]
        coming[:, :, LEAD - 1] += split * (ordered[:, 0] - express)[:, None]
        coming[:, :, LEAD - 3] += split * express[:, None]
        coming[:, :, 0] += split * ordered[:, 1, None]
        noise = 1.0 + self.parameter["noise"][:, None] * self._normals(HOUSES)
        at_list_price = np.maximum(self._expected(0) * noise, 0.0) + self._sales()
        price = 0.8 + 0.4 * share[:, 4, None]
        sales = np.minimum(stock, at_list_price * price**-ELASTICITY)
        left = stock - sales
        cost = HOLDING * left.sum(axis=1) + CHEAP * paid[:, 0] + DEAR * paid[:, 1]
        cost += FREIGHT * ordered.sum(axis=1) + EXPRESS * express
        service = np.minimum(sales, at_list_price).sum(axis=1) / np.maximum(at_list_price.sum(axis=1), 1e-12)
        turnover = np.minimum(1.0, sales.sum(axis=1) / np.maximum((stock + left).sum(axis=1) / 2, 1e-12))
        failing = working & (self._chance(2 * HOUSES + 2)[:, -2:] < self.parameter["disruptions"][:, None] / 10.0)
        body["outage"] = np.where(failing, OUTAGE, np.maximum(body["outage"] - 1, 0))
        body["stock"], body["coming"], body["demand"] = left, coming, at_list_price
        reward = -0.4 * cost / REFERENCE + 0.4 * service + 0.2 * turnover
        body["total"] = body["total"] + reward
        nobody = np.zeros(len(cost), dtype=np.bool_)
        return Outcome(reward, nobody, nobody)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["total"] >= self.parameter["aim"] * self.parameter["max_steps"])

    def _observe(self) -> Observations:
        body, count = self.body, len(self.members)
        amounts = [body["stock"], body["coming"].reshape(count, -1), body["demand"]]
        amounts += [self._expected(ahead) for ahead in range(1, FORECAST + 1)]
        facts = [
            body["outage"] == 0,
            self.parameter["disruptions"][:, None],
            (self.age / self.parameter["max_steps"])[:, None],
        ]
        return np.concatenate([*(part / MEAN_DEMAND for part in amounts), *facts], axis=1).astype(np.float32)
