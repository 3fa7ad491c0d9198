"""The manifests of the chart and the operator, for their checks: linters, schemas, rules of hardening guides."""
