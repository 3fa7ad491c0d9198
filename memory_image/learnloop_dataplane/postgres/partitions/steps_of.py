"""How a statement finds the steps of an episode in one partition rather than in all."""

STEPS_OF = "s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id AND s.received_at = t.received_at"
"""`s` is training_transitions, `t` trajectories. Both are written in one transaction, with one time."""
STEPS_OF_EACH = f"CROSS JOIN LATERAL (SELECT s.* FROM training_transitions s WHERE {STEPS_OF} OFFSET 0) s"
"""The same after `FROM t`, looked up row by row: a page's steps are never joined with all there are."""
