"""What every route shares: bodies, callers, refusals, limits, pages, progress."""
