"""Encryption of what people and agents left: keys of each namespace, agent and person, wrapped by keys of a Secret."""
