"""GitOps tools as processes, beside an API server of one's own."""
