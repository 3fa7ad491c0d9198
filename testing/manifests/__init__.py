"""What the chart and the operator make, for whoever checks it: linters, schemas, rules of hardening guides."""
