"""The loop on a real cluster, turn after turn: four agents by YAML alone."""
