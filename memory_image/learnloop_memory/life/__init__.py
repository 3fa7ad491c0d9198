"""How memories live: forgetting, consolidation, provenance, snapshots, moving them about."""
