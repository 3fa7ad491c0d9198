"""What hack/cluster, hack/images and hack/demo share: running programs, side by side, and saying how far they are."""
