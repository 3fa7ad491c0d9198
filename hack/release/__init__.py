"""The parts of a release besides images: wheels, the chart as an OCI archive, a manifest for Krew."""
