"""How memories live: budgets, forgetting, consolidation, origins, export and import."""
