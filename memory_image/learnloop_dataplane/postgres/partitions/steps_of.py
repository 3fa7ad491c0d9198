"""How a statement finds the steps of an episode in one partition rather than in all."""

STEPS_OF = """s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id
    AND s.received_at BETWEEN t.received_at AND t.received_at + interval '1 minute'"""
"""`s` is training_transitions, `t` trajectories. Both are written in one transaction, at one time; only a replica of an
older version, beside which this one is rolled out, leaves the steps' time to the database, a moment later."""
