"""Steps of episodes in partitions by time; they go with their episodes by a trigger in place of a foreign key."""

from alembic import op

from learnloop_dataplane.postgres.migrations import cutting

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

FUNCTION = """
CREATE FUNCTION forget_with_episode() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('app.steps_go_by_partition', true) = 'on' THEN RETURN NULL; END IF;
    DELETE FROM training_transitions s USING gone t
        WHERE s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id
        AND s.received_at BETWEEN t.received_at AND t.received_at + interval '1 minute';
    RETURN NULL;
END $$
"""
TRIGGER = """
CREATE TRIGGER forget_with_episode AFTER DELETE ON trajectories REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_with_episode()
"""
RULE = "namespace = current_setting('app.namespace', true)"


def upgrade() -> None:
    cutting.add_time()
    end = cutting.prepare_key()
    cutting.swap(end)
    op.execute("ALTER TABLE training_transitions ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON training_transitions USING ({RULE}) WITH CHECK ({RULE})")
    op.execute(FUNCTION)
    op.execute(TRIGGER)


def downgrade() -> None:
    """One table again. It is written whole: stop the data plane first where there are many rows."""
    op.execute("DROP TRIGGER forget_with_episode ON trajectories")
    op.execute("DROP FUNCTION forget_with_episode()")
    op.execute("ALTER TABLE training_transitions NO FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE trajectories NO FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE training_transitions RENAME TO transitions_by_day")
    op.execute("CREATE TABLE training_transitions (LIKE transitions_by_day)")
    op.execute(
        "INSERT INTO training_transitions SELECT s.* FROM transitions_by_day s"
        " JOIN trajectories t USING (namespace, trajectory_id)"
    )
    op.execute("DROP TABLE transitions_by_day")
    op.execute("ALTER TABLE trajectories FORCE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE training_transitions DROP COLUMN received_at")
    op.execute("ALTER TABLE training_transitions ADD PRIMARY KEY (namespace, trajectory_id)")
    op.execute(
        "ALTER TABLE training_transitions ADD CONSTRAINT fk_transitions_trajectory FOREIGN KEY"
        " (namespace, trajectory_id) REFERENCES trajectories (namespace, trajectory_id) ON DELETE CASCADE"
    )
    op.execute("ALTER TABLE training_transitions ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON training_transitions USING ({RULE}) WITH CHECK ({RULE})")
