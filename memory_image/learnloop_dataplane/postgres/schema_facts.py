"""What the running service and the migrations must agree on, importable without SQLAlchemy and Alembic (1 s, 30 MB)."""

HEAD = "0032"  # the newest migration; a test compares it with the files
SERVICE_ROLE = "learnloop_service"  # the database role the service works under
SETTING = "app.namespace"  # the setting row-level security compares with
