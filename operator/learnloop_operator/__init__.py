"""The learnloop operator: read the cluster, decide purely, apply the plan."""
