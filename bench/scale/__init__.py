"""The operator on a cluster of hundreds of nodes, which kwok plays."""
