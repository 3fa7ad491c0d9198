"""Pure decisions: no I/O, no clock, no Kubernetes. Every hard question is answered here."""
