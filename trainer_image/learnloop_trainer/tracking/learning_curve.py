"""The curve of a run's returns: when it settled, and how far it has."""

SHARE = 0.05
MOST_POINTS = 512
LEAST_POINTS = 8


class LearningCurve:
    """Mean returns by step, thinned so that a long run takes no more room than a short one."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._every, self._skipped = 1, 0

    def note(self, step: int, mean_return: float) -> None:
        """One more point; steps rise."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._points.append((step, mean_return))
        if len(self._points) > MOST_POINTS:
            self._points = self._points[1::2]
            self._every *= 2

    def figures(self) -> dict[str, float]:
        """`convergence`: 1 less the change over the last quarter of the steps, as a share of the whole range.
        `samples_to_convergence`: the step from which on the return stayed within 5 % of that range of where it ended;
        only once that holds for the last quarter. Nothing while there are few points, or all are the same.
        """
        if len(self._points) < LEAST_POINTS:
            return {}
        values = [value for _, value in self._points]
        spread = max(values) - min(values)
        if spread <= 0.0:
            return {}
        first, last = self._points[0][0], self._points[-1][0]
        quarter = last - (last - first) / 4.0
        late = [value for step, value in self._points if step >= quarter]
        found = {"convergence": max(0.0, 1.0 - abs(late[-1] - late[0]) / spread)}
        settled = last
        for step, value in reversed(self._points):
            if abs(value - values[-1]) > SHARE * spread:
                break
            settled = step
        if settled <= quarter:
            found["samples_to_convergence"] = float(settled)
        return found
