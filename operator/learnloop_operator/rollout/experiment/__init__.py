"""A/B/n experiments: arms compared pair by pair on live episodes, always-valid, until one is left or time is up."""
