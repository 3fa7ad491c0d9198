"""Manifests and routes of a ModelDeployment, and what its live pods say."""
