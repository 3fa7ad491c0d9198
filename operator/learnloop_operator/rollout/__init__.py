"""Progressive delivery of one ModelDeployment: state, evidence, decision, routing table, manifests."""
