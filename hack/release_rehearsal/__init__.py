"""The rehearsal of a release: a registry on this machine, an install from it alone, and one turn of the loop."""
