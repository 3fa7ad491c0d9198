"""Kopf and the workers: read the cluster, have a pure decision made, and apply its plan."""
