"""GitOps tools as processes, next to an API server of their own."""
