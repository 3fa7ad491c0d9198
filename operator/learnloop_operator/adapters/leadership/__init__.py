"""One leader at a time: the Lease, the claims on namespaces, and the proofs that this process is alive."""
