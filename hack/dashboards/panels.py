"""The parts of every dashboard: a Prometheus to choose, agents to choose, and panels that ask it."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, SortOrder, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh, VariableSort

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
AGENT = 'exported_namespace=~"$namespace", agent=~"$agent"'
"""The agents chosen, in a selector."""
WHOLE, HALF, THIRD, QUARTER = 24, 12, 8, 6


def page(title: str, uid: str, description: str, *, agents: bool = True) -> dashboard.Dashboard:
    """A dashboard without panels. With `agents`, somebody chooses namespaces and agents."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["learnloop"])
        .readonly()
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    if not agents:
        return made
    chosen = "agent_rl_trajectories_collected_total"
    return made.with_variable(
        _variable("namespace", f"label_values({chosen}, exported_namespace)", "Namespace")
    ).with_variable(_variable("agent", f'label_values({chosen}{{exported_namespace=~"$namespace"}}, agent)', "Agent"))


def curves(
    title: str, description: str, queries: Mapping[str, str], unit: str = "short", span: int = HALF
) -> timeseries.Panel:
    """Curves over time. `queries`: what a legend says (`{{label}}` stands for a label) → the expression."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(8)
        .fill_opacity(8)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    for index, (legend, expression) in enumerate(queries.items()):
        panel = panel.with_target(_query(chr(ord("A") + index), expression, legend))
    return panel


def figure(title: str, description: str, expression: str, unit: str = "short", span: int = QUARTER) -> stat.Panel:
    """One number."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(4)
        .with_target(_query("A", expression, "").instant())
    )


def marked(made: dashboard.Dashboard, marks: Sequence[tuple[str, str, str]]) -> dashboard.Dashboard:
    """With annotations: name, colour and an expression that is above 0 when it happens."""
    for name, colour, expression in marks:
        made = made.annotation(
            dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(colour).expr(expression)
        )
    return made


def _variable(name: str, query: str, label: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _query(ref: str, expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).expr(expression).legend_format(legend)
