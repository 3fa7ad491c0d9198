"""Who tries to break in, wipe, forge and starve: attacks by class on real servers at the versions that are shipped."""
