"""An exhaustive walk through the states of a rollout: no path may break a promise."""
