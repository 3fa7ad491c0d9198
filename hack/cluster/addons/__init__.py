"""The parts of a cluster besides its control plane and its node."""
