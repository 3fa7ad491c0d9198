"""How a statement finds the steps of an episode in one partition rather than in all."""

STEPS_OF = "s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id AND s.received_at = t.received_at"
"""`s` is training_transitions, `t` trajectories. Both are written in one transaction, with one time."""
