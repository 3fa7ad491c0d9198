"""A market of one trader, at four difficulties."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.randomness import Words
from learnloop_environments.simulation import Flags, Level, Outcome, Simulation, box
from learnloop_environments.spaces import Observations

HISTORY, RECENT, BANDS = 24, 6, 5
PERSISTENCE, RATE = 0.95, 0.05  # of the trend; of the running Sharpe ratio
COST, RISK, IMPACT = 0.05, 0.02, 0.05
PERCENT = 10.0  # deviation of a return in percent, for a volatility of 1
CORRIDOR = 0.01  # of stop loss and take profit: a percent, in the easiest market


def _band(position: NDArray[Any]) -> NDArray[np.int64]:
    """The fifth of the positions from full short to full long that each one is in [n]."""
    return np.minimum(((position + 1.0) / 2.0 * BANDS).astype(np.int64), BANDS - 1)


class Trading(Simulation):
    """Trading: hold a position in one asset among competitors, for profit at bounded risk.

    Returns have a slow, hidden trend that the agent can only infer; competitors crowd it out and add noise, and large
    trades move the price. Three decisions, each in [-1, 1]: the position wanted (full short to full long), a stop loss
    (1 to 10 %) and a take profit (2 to 20 %) since the position was opened. Returns, profit and costs are counted in
    percent: the trend is the same in all markets, and what a return deviates from it grows with `volatility` (10 times
    as many percent). The reward is the specification's two formulas together:

        0.4 profit + 0.3 Sharpe + 0.2 cooperation + 0.1 novelty - risk - transaction cost - market impact

    Sharpe is the change of the running Sharpe ratio (Moody & Saffell, 1998, equation 7). Cooperation is what a trade
    leaves of the price to others: minus half its size. Novelty is 1 / sqrt(visits) of the band of positions that is
    entered, and risk grows with the square of the position and with the volatility. So who holds no position earns
    nothing. An episode succeeds with a profit.

    Seen (50 numbers), money in the market's deviations: 24 returns, 6 indicators (means over 3, 6, 12, 24 steps,
    relative strength, Bollinger), 6 volumes; sentiment (the trend, blurred), 4 of the portfolio, 3 of risk, the
    competitors' last 6 net positions.
    """

    observations = HISTORY + 6 + RECENT + 1 + 4 + 3 + RECENT
    actions = 3
    bounds = box(-1.0, 1.0, 3)
    PARAMETERS: ClassVar[Mapping[str, float]] = {"volatility": 0.1, "competitors": 2, "signal": 1.0, "max_steps": 200}
    LEVELS: ClassVar[tuple[Level, ...]] = (
        Level("easy", 0.8),
        Level("medium", 0.8, {"volatility": 0.3, "competitors": 5}),
        Level("hard", 0.8, {"volatility": 0.5, "competitors": 10}),
        Level("expert", 0.8, {"volatility": 0.8, "competitors": 20}),
    )

    def _blank(self, count: int) -> dict[str, NDArray[Any]]:
        single = ("trend", "position", "opened", "wealth", "peak", "mean", "square", "sharpe", "sentiment")
        body = {name: np.zeros(count) for name in single}
        body |= {name: np.zeros((count, RECENT)) for name in ("volume", "crowd")}
        return body | {"returns": np.zeros((count, HISTORY)), "visits": np.zeros((count, BANDS))}

    def _begin(self, which: NDArray[np.intp], seeds: Words) -> None:
        for array in self.body.values():
            array[which] = 0.0
        self.body["trend"][which] = 4.0 * (self._draws(seeds, 1)[:, 0] - 0.5)
        self.body["square"][which] = 1.0

    def _advance(self, actions: NDArray[Any]) -> Outcome:
        body, noise, deviation = self.body, self._normals(4), self._deviation()
        wanted = self._stopped(actions)
        trade = np.abs(wanted - body["position"])
        opened = np.where(np.sign(wanted) == np.sign(body["position"]), body["opened"], 0.0)
        rivals = self.parameter["competitors"]
        crowd = np.tanh(body["trend"] + 0.5 * noise[:, 1])
        moved = self.parameter["signal"] * body["trend"] / (1.0 + 0.05 * rivals) * 0.5
        change = moved + noise[:, 0] * deviation * np.sqrt(1.0 + 0.01 * rivals)
        profit = wanted * change
        body["trend"] = PERSISTENCE * body["trend"] + np.sqrt(1.0 - PERSISTENCE**2) * noise[:, 2]
        body["sentiment"] = body["trend"] + noise[:, 3]
        before, after = _band(body["position"]), _band(wanted)
        body["position"], body["opened"] = wanted, opened + CORRIDOR * profit / deviation
        net = profit - COST * trade - IMPACT * trade * trade
        body["wealth"] = body["wealth"] + net
        body["peak"] = np.maximum(body["peak"], body["wealth"])
        self._remember("returns", change)
        self._remember("crowd", crowd)
        self._remember("volume", np.abs(change) / deviation + np.abs(crowd) + trade)
        entered, rows = before != after, np.arange(len(after))
        body["visits"][rows, after] += entered
        novelty = entered / np.sqrt(np.maximum(body["visits"][rows, after], 1.0))
        reward = 0.4 * profit + 0.3 * self._sharpe(net, deviation) - 0.2 * trade / 2.0 + 0.1 * novelty
        reward -= RISK * wanted * wanted * deviation + COST * trade + IMPACT * trade * trade
        return Outcome.going_on(reward)

    def _deviation(self) -> NDArray[np.float64]:
        """The deviation of a return from the trend, in percent [n]; at least a thousandth."""
        return np.asarray(np.maximum(PERCENT * self.parameter["volatility"], 1e-3))

    def _stopped(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        """The position wanted, or none where the profit since opening has left the corridor the agent set.

        The corridor is quoted for the easiest market, and is as many deviations wide in every other one.
        """
        loss, gain = 0.01 + 0.045 * (actions[:, 1] + 1.0), 0.02 + 0.09 * (actions[:, 2] + 1.0)
        out = (self.body["opened"] < -loss) | (self.body["opened"] > gain)
        return np.where(out, 0.0, actions[:, 0])

    def _sharpe(self, net: NDArray[Any], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
        """Change of the exponentially weighted Sharpe ratio."""
        body, net = self.body, net / deviation
        body["mean"] = body["mean"] + RATE * (net - body["mean"])
        body["square"] = body["square"] + RATE * (net * net - body["square"])
        ratio = body["mean"] / np.sqrt(np.maximum(body["square"] - body["mean"] ** 2, 0.01))
        gained, body["sharpe"] = ratio - body["sharpe"], ratio
        return np.asarray(gained)

    def _remember(self, name: str, value: NDArray[Any]) -> None:
        self.body[name] = np.concatenate((self.body[name][:, 1:], value[:, None]), axis=1)

    def _succeeded(self, truncated: Flags) -> Flags:
        return truncated & (self.body["wealth"] > 0)

    def _observe(self) -> Observations:
        deviations = self._deviation()
        body, past = self.body, self.body["returns"] / deviations[:, None]
        means = [past[:, -span:].mean(axis=1) for span in (3, 6, 12, 24)]
        ups = np.maximum(past, 0.0).sum(axis=1)
        strength = ups / np.maximum(np.abs(past).sum(axis=1), 1e-9) - 0.5
        deviation = past.std(axis=1)
        bollinger = (past[:, -1] - means[3]) / np.maximum(deviation, 1e-9)
        wealth, peak = (body[name] / deviations / 10.0 for name in ("wealth", "peak"))
        singles = [*means, strength, bollinger, body["sentiment"], body["position"], body["opened"] * 10.0]
        risk = [deviation, -np.quantile(past, 0.05, axis=1), body["sharpe"]]
        singles += [wealth, wealth - peak, *risk]
        return np.concatenate(
            [past, np.stack(singles, axis=1), body["volume"], body["crowd"]], axis=1, dtype=np.float32
        )
