"""A real Kubernetes on this machine, for the demo and the tests. Standard library only: it runs before any install."""
