"""Break-ins, deletions, forgeries and starvation: attacks by class on real servers at the versions that are shipped."""
