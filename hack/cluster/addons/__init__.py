"""What a cluster has beside its control plane and its node."""
