"""What the running service and the migrations must agree on, importable without SQLAlchemy and Alembic (1 s, 30 MB)."""

HEAD = "0001"  # the newest migration; a test compares it with the files
SERVICE_ROLE = "learnloop_service"  # the database role the service works under
SETTING = "app.namespace"  # the setting row-level security compares with
APPEND_ONLY = ("audit_log", "audit_checkpoints")  # no right to change them, and a trigger that refuses their owner too
