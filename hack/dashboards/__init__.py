"""Dashboards of Grafana, as code: `python hack/dashboards write|check` keeps charts/learnloop/dashboards."""
