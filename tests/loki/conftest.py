"""A real Loki and a real collector, which take a processor for ten minutes to build: only `make loki` runs these."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "learnloop-system"
Shipping = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def shipping(tmp_path_factory: pytest.TempPathFactory) -> Shipping:
    """The chart's collector.yaml and loki.yaml by name, for values of `logs.shipping`."""
    helm = subprocess.run([ROOT / "hack" / "helm", "--cached"], capture_output=True, text=True, check=True)

    def files(**values) -> dict:
        chart_values = {"crds": {"enabled": False}, "logs": {"format": "json", "shipping": {"enabled": True, **values}}}
        file = tmp_path_factory.mktemp("values") / "values.json"
        file.write_text(json.dumps(chart_values))
        chart = [str(ROOT / "charts" / "learnloop"), "-n", NAMESPACE, "-f", str(file)]
        command = [helm.stdout.strip(), "template", "learnloop", *chart, "-s", "templates/monitoring/log-shipping.yaml"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        return {name: yaml.safe_load(text) for name, text in yaml.safe_load(made.stdout)["data"].items()}

    return files
