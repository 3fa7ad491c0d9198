"""The words of PromQL that are no metric."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATIONS = _words("sum avg count min max group stddev stdvar topk bottomk count_values quantile limitk limit_ratio")
SET_OPERATORS = _words("and or unless atan2")
GROUPING = _words("by without")
MATCHING = _words("on ignoring")
JOINING = _words("group_left group_right")
NUMBERS = _words("inf nan")
RESERVED = AGGREGATIONS | SET_OPERATORS | GROUPING | MATCHING | JOINING | NUMBERS | {"bool", "offset"}
"""In any case of letters; Prometheus takes some of them for metrics, depending on what stands beside them."""

FUNCTIONS = _words(
    """
    abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max clamp_min
    cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv
    double_exponential_smoothing
    exp first_over_time floor histogram_avg histogram_count histogram_fraction histogram_quantile histogram_stddev
    histogram_stdvar histogram_sum holt_winters hour idelta increase irate label_join label_replace last_over_time ln
    log10 log2 mad_over_time max_over_time min_over_time minute month pi predict_linear present_over_time
    quantile_over_time rad rate resets round scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt
    stddev_over_time stdvar_over_time sum_over_time tan tanh time timestamp ts_of_first_over_time ts_of_last_over_time
    ts_of_max_over_time ts_of_min_over_time vector year
    """
)
"""Functions that read the series of their arguments and no others: `info` is missing, it looks for series by itself."""
