"""How memories live: budgets, forgetting, consolidation, provenance, snapshots, export and import."""
