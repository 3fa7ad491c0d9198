"""Loki and a collector, each built once for its go.mod and go.sum: ten processor minutes, and one."""

from pathlib import Path

from go_programs import go_build

FOLDER = Path(__file__).parent
LOKI = go_build.Module("loki", {"loki": "github.com/grafana/loki/v3/cmd/loki"}, sources=FOLDER)
"""v3.7.8, with the replacements of its own go.mod."""
COLLECTOR = go_build.Module("collector", {"otelcol": "./otelcol"}, sources=FOLDER)
"""v0.160.0, of the components that the chart's collector.yaml names, and a receiver of OTLP."""


def loki_program() -> Path:
    """Raises Refusal without a Go toolchain, CommandFailed when a download or the build fails."""
    return go_build.ensure(LOKI, LOKI.programs)["loki"]


def collector_program() -> Path:
    """The same of the collector."""
    return go_build.ensure(COLLECTOR, COLLECTOR.programs)["otelcol"]
