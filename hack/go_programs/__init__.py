"""Programs that are built from pinned Go modules, once for each version of go.mod and go.sum."""
