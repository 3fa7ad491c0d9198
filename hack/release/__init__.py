"""What a release is made of besides images: wheels, the chart as an OCI archive, a manifest for Krew."""
