"""A supply chain: three suppliers, two warehouses, up to 30 stores. One file to copy, on NumPy and learnloop's base of
simulations, which the images have: many run at a time, and a run resumes exactly.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Floats64, Level, Outcome, Simulation, box
from learnloop_environments.spaces import Observations

HOUSES, FORECAST, DEMAND = 2, 3, 10.0  # warehouses; periods seen ahead; units a period and warehouse in the mean
# Of the suppliers: far, regional and near.
LARGEST = np.asarray([20.0, 12.0, 8.0])  # units a period at full capacity
PRICE = np.asarray([1.0, 1.2, 1.5])
FREIGHT = np.asarray([0.15, 0.1, 0.05])  # of a unit at the usual rate
LEAD = np.asarray([4, 2, 1])  # periods
BY_SEA = np.asarray([True, True, False])  # congestion of the ports delays them and doubles their freight
SUPPLIERS = len(LARGEST)
LATE, CONGESTION, SLOTS = 0.3, 2, 7  # chance that a shipment takes a period more; periods of delay; the longest way
EXPRESS, HOLDING, STOCKOUT = 0.3, 0.05, 1.5  # a unit
ELASTICITY, SEASON = 1.5, 0.5
OUTAGE, JAM, SURGE, RISE = 6, 4, 4, 1.5  # periods without a supplier, in congestion and of a shock; demand in a shock
PERSISTENCE = 0.9  # of capacities and freight rates
SALES, SALE, MANY = 0.03, 6.0, 6  # chance a store and period; units; in a warehouse's stores together
REFERENCE = HOUSES * DEMAND * (PRICE[0] + FREIGHT[0] + HOLDING)  # of one period that runs smoothly
NORMALS, CHANCES = HOUSES + 2 * SUPPLIERS, 2 * HOUSES + 2 * SUPPLIERS + 1


class SupplyChain(Simulation):
    """Keep two warehouses stocked: choose suppliers, amounts, freight, warehouse and price.

    Each supplier has a capacity, a freight rate and a lead time, and all three vary. Capacities wander between a half
    and the whole, and are 0 for some periods when a supplier fails. Rates wander, too. A shipment takes the lead time
    that is seen, and often one period more; congestion of the ports adds two to those by sea, and doubles their rate.
    Demand has a season, noise, stores with sales of their own, and shocks that raise it for some periods. A store's
    part of the usual demand falls with the number of stores, what a sale wants does not: many stores, unsteady demand.

    Six decisions a period, each in [-1, 1]: an order from each supplier, the share of it that goes by express (half
    the lead time), the first warehouse's share, and the price (0.8 to 1.2 of the list price). The reward balances the
    specification's objectives with its weights:

        -0.4 cost / reference + 0.4 service level + 0.2 turnover

    Cost is that of inventory, of stockouts, of transportation and of ordering. Service is sales by the demand at list
    price: demand that a high price drives away is not served. Turnover is sales by average stock, at most 1. All four
    are values for a RewardPolicy, too. Seen: stock, what is under way, demand, its forecast, capacities, freight rates,
    lead times, risk and time. An episode succeeds when its mean reward reaches `aim`.
    """

    observations = HOUSES * (1 + SLOTS + 1 + FORECAST) + 3 * SUPPLIERS + 2
    actions = SUPPLIERS + 3
    bounds = box(-1.0, 1.0, SUPPLIERS + 3)
    PARAMETERS: ClassVar[Mapping[str, float]] = {
        "disruptions": 0.1,  # tenfold chance a period of an outage, of congestion and of a shock
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
        body = {name: np.zeros(count) for name in ("phase", "season", "jam", "total")}
        body |= {name: np.zeros((count, HOUSES)) for name in ("usual", "stores", "stock", "demand", "surge")}
        body |= {name: np.zeros((count, SUPPLIERS)) for name in ("capacity", "rate", "outage")}
        return body | {"coming": np.zeros((count, HOUSES, SLOTS))}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        body, draws = self.body, self._draws(seeds, 2 + 2 * SUPPLIERS)
        for name in ("coming", "surge", "outage", "jam", "total"):
            body[name][which] = 0.0
        body["phase"][which], body["season"][which] = 2 * math.pi * draws[:, 0], 8.0 + 16.0 * draws[:, 1]
        body["capacity"][which], body["rate"][which] = np.split(2.0 * draws[:, 2:] - 1.0, 2, axis=1)
        # Stores belong to the warehouses by turns.
        stores = (self.parameter["complexity"][which, None] + np.arange(HOUSES - 1, -1, -1)) // HOUSES
        body["stores"][which], body["usual"][which] = stores, DEMAND - SALES * SALE * stores
        body["stock"][which] = 2 * DEMAND
        body["demand"][which] = self._expected(0)[which]

    def _expected(self, ahead: int) -> Floats64:
        """Demand of each warehouse at list price, `ahead` periods from now, without shocks, sales and noise [n, 2]."""
        body = self.body
        wave = np.sin(2 * math.pi * (self.age + ahead) / np.maximum(body["season"], 1.0) + body["phase"])
        return np.asarray(body["usual"] * (1.0 + SEASON * wave)[:, None])

    def _capacities(self) -> Floats64:
        """Units that each supplier can send now [n, 3]."""
        body = self.body
        return np.asarray(LARGEST * np.clip(0.75 + 0.25 * body["capacity"], 0.5, 1.0) * (body["outage"] == 0))

    def _rates(self) -> Floats64:
        """Freight of a unit from each supplier now [n, 3]."""
        jammed = BY_SEA & (self.body["jam"] > 0)[:, None]
        return np.asarray(FREIGHT * np.exp(0.4 * self.body["rate"]) * (1.0 + jammed))

    def _leads(self) -> NDArray[np.int64]:
        """Periods that a shipment takes which is not late [n, 3]."""
        return np.asarray(LEAD + CONGESTION * (BY_SEA & (self.body["jam"] > 0)[:, None]))

    def _sales(self, chance: Floats64) -> Floats64:
        """Units that the sales of this period's stores add to the demand of each warehouse [n, 2].

        How many there are is Poisson distributed, as for many stores with a small chance each, cut off at MANY.
        """
        rate = SALES * self.body["stores"]
        term = np.exp(-rate)
        held, count = np.zeros_like(rate), term
        for number in range(1, MANY + 1):
            held += chance > count
            term = term * rate / number
            count = count + term
        return SALE * held

    def _sent(self, ordered: Floats64, express: Floats64, first: Floats64, late: Flags) -> Floats64:
        """Shipments under way to each warehouse after this period's orders, by periods [n, 2, slots]."""
        rows, lead = np.arange(len(ordered)), self._leads() + late
        coming = np.concatenate((self.body["coming"][:, :, 1:], np.zeros((len(rows), HOUSES, 1))), axis=2)
        split = np.stack((first, 1.0 - first), axis=1)
        for part, periods in ((1.0 - express, lead), (express, (lead + 1) // 2)):
            for supplier in range(SUPPLIERS):
                units = (part * ordered[:, supplier])[:, None]
                coming[rows, :, periods[:, supplier] - 1] += split * units
        return coming

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body, share = self.body, (actions + 1.0) / 2.0
        noises = self._normals(NORMALS)
        chance = self._chance(2 * NORMALS + CHANCES)[:, 2 * NORMALS :]
        # Shipments arrive and orders leave.
        stock = body["stock"] + body["coming"][:, :, 0]
        ordered = np.minimum(LARGEST * share[:, :SUPPLIERS], self._capacities())
        express = share[:, SUPPLIERS]
        coming = self._sent(ordered, express, share[:, SUPPLIERS + 1], chance[:, :SUPPLIERS] < LATE)
        # Stores buy.
        noise = 1.0 + self.parameter["noise"][:, None] * noises[:, :HOUSES]
        rise = np.where(body["surge"] > 0, RISE, 1.0)
        at_list_price = np.maximum(self._expected(0) * noise * rise, 0.0) + self._sales(chance[:, -HOUSES:])
        price = 0.8 + 0.4 * share[:, SUPPLIERS + 2, None]
        wanted = at_list_price * price**-ELASTICITY
        sales = np.minimum(stock, wanted)
        left = stock - sales
        cost = HOLDING * left.sum(axis=1) + STOCKOUT * (wanted - sales).sum(axis=1)
        cost += (ordered * (PRICE + self._rates() + EXPRESS * express[:, None])).sum(axis=1)
        service = np.minimum(sales, at_list_price).sum(axis=1) / np.maximum(at_list_price.sum(axis=1), 1e-12)
        turnover = np.minimum(1.0, sales.sum(axis=1) / np.maximum((stock + left).sum(axis=1) / 2, 1e-12))
        reward = -0.4 * cost / REFERENCE + 0.4 * service + 0.2 * turnover
        body["stock"], body["coming"], body["demand"] = left, coming, at_list_price
        body["total"] = body["total"] + reward
        self._disturb(noises[:, HOUSES:], chance[:, SUPPLIERS:-HOUSES])
        values = {"cost": cost, "service": service, "turnover": turnover, "stockouts": (wanted - sales).sum(axis=1)}
        return Outcome.going_on(reward, **values)

    def _disturb(self, noises: Floats64, chance: Floats64) -> None:
        """Capacities and rates wander; suppliers fail, ports jam, demand surges."""
        body, risk = self.body, self.parameter["disruptions"][:, None] / 10.0
        for name, noise in zip(("capacity", "rate"), np.split(noises, 2, axis=1), strict=True):
            body[name] = PERSISTENCE * body[name] + math.sqrt(1.0 - PERSISTENCE**2) * noise
        starts = chance < risk
        jam, starts = starts[:, 0], starts[:, 1:]
        outage, surge = starts[:, :SUPPLIERS], starts[:, SUPPLIERS:]
        for name, begins, periods in (("outage", outage, OUTAGE), ("jam", jam, JAM), ("surge", surge, SURGE)):
            body[name] = np.where((body[name] == 0) & begins, periods, np.maximum(body[name] - 1, 0))

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["total"] >= self.parameter["aim"] * self.parameter["max_steps"])

    def _observe(self) -> Observations:
        body, count = self.body, len(self.members)
        amounts = [body["stock"], body["coming"].reshape(count, -1), body["demand"]]
        amounts += [self._expected(ahead) for ahead in range(1, FORECAST + 1)] + [self._capacities()]
        facts = [self._rates() / FREIGHT, self._leads() / LEAD.max()]
        facts += [self.parameter["disruptions"][:, None], (self.age / self.parameter["max_steps"])[:, None]]
        return np.concatenate([*(part / DEMAND for part in amounts), *facts], axis=1).astype(np.float32)


def base_stock(observations: Observations, periods: float = 4.0) -> NDArray[np.float64]:
    """Order what lacks to a stock of so many periods' demand, on hand and under way, at list price.

    The cheapest supplier first, as far as its capacity goes; and for the warehouse that lacks more.
    """
    held, units = HOUSES * (1 + SLOTS), np.asarray(observations, dtype=np.float64) * DEMAND
    hand, coming = units[:, :HOUSES], units[:, HOUSES:held].reshape(-1, HOUSES, SLOTS).sum(axis=2)
    ahead = units[:, held + HOUSES : held + HOUSES * (1 + FORECAST)].reshape(-1, FORECAST, HOUSES).mean(axis=1)
    lack = np.maximum(periods * ahead - hand - coming, 0.0)
    capacity, left = units[:, held + HOUSES * (1 + FORECAST) :][:, :SUPPLIERS], lack.sum(axis=1)
    action = np.zeros((len(units), SUPPLIERS + 3))
    for supplier in range(SUPPLIERS):
        order = np.minimum(left, capacity[:, supplier])
        action[:, supplier], left = 2.0 * order / LARGEST[supplier] - 1.0, left - order
    action[:, SUPPLIERS] = -1.0
    action[:, SUPPLIERS + 1] = 2.0 * (lack[:, 0] + 1e-9) / (lack.sum(axis=1) + 2e-9) - 1.0
    return action
