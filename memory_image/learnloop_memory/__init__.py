"""The data plane: experience, rewards, memories, artifacts and training runs behind one HTTP service."""
