"""Facts that the running service and the migrations share, importable without SQLAlchemy and Alembic (1 s, 30 MB)."""

HEAD = "0001"  # the newest migration; a test compares it with the files
SERVICE_ROLE = "learnloop_service"  # the database role the service works under
SETTING = "app.namespace"  # the setting row-level security compares with
APPEND_ONLY = ("audit_log",)  # no right to change them, and a trigger that refuses their owner too
STEPS_OF = "s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id"
"""`s` is training_transitions, `t` trajectories."""
STEPS_OF_EACH = f"CROSS JOIN LATERAL (SELECT s.* FROM training_transitions s WHERE {STEPS_OF} OFFSET 0) s"
"""The same after `FROM t`, looked up row by row: a page's steps are never joined with all there are."""
