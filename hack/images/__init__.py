"""Building the container images of the product and of its local data plane, and loading them into hack/cluster."""
