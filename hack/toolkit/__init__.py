"""Shared parts of hack/cluster, hack/images and hack/demo: running programs, in parallel, with their progress."""
