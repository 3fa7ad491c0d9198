"""Row-level security: a transaction sees the rows of the namespace it named with `app.namespace`, and no others.

FORCE makes the rule hold for the tables' owner too; superusers bypass every policy, so the service works under the
role `learnloop_service`, which is neither. A statement without WHERE, or a forgotten one, cannot cross the border.
"""

from sqlalchemy import DDL, Table, event
from sqlmodel import SQLModel

from learnloop_dataplane.postgres import event_tables, experience_tables, memory_tables
from learnloop_dataplane.postgres.schema_facts import APPEND_ONLY, SETTING

__all__ = [
    "APPEND_ONLY",
    "UNSCOPED",
    "event_tables",
    "experience_tables",
    "listen",
    "memory_tables",
    "policy",
]

UNSCOPED = ("tenants",)

# What belongs to a memory goes with it. A trigger once a statement, because a foreign key looks up every row that is
# *inserted*: 10 of the 25 µs a batched store may take. It runs as the caller, under the caller's row-level security.
FORGET_WITH_MEMORY = """
CREATE FUNCTION forget_with_memory() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    DELETE FROM memory_vec v USING gone g
        WHERE v.namespace = g.namespace AND v.agent_id = g.agent_id AND v.memory_id = g.id;
    DELETE FROM memory_pending p USING gone g
        WHERE p.namespace = g.namespace AND p.agent_id = g.agent_id AND p.memory_id = g.id;
    DELETE FROM memory_use u USING gone g WHERE u.namespace = g.namespace AND u.memory_id = g.id;
    DELETE FROM memory_words w USING gone g
        WHERE w.namespace = g.namespace AND w.agent_id = g.agent_id AND w.memory_id = g.id;
    DELETE FROM memory_absences a USING gone g WHERE a.namespace = g.namespace AND a.memory_id = g.id;
    RETURN NULL;
END $$
"""
FORGET_TRIGGER = """
CREATE TRIGGER forget_with_memory AFTER DELETE ON agent_memories REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_with_memory()
"""
# The steps are in partitions: a foreign key would lock both tables whenever one comes or goes. Retention, which drops a
# partition as soon as its episodes are gone, need not delete the same rows before.
FORGET_WITH_EPISODE = """
CREATE FUNCTION forget_with_episode() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('app.steps_go_by_partition', true) = 'on' THEN RETURN NULL; END IF;
    DELETE FROM training_transitions s USING gone t
        WHERE s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id AND s.received_at = t.received_at;
    RETURN NULL;
END $$
"""
FORGET_EPISODE_TRIGGER = """
CREATE TRIGGER forget_with_episode AFTER DELETE ON trajectories REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_with_episode()
"""
# Copies of an agent's memories are kept in other processes; these two tell `recall.cached_agents` what to read again.
NOTE_CHANGE = """
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.changed := pg_current_xact_id();
    RETURN NEW;
END $$
"""
NOTE_CHANGE_TRIGGER = """
CREATE TRIGGER note_change BEFORE UPDATE ON memory_vec FOR EACH ROW EXECUTE FUNCTION note_change()
"""
NOTE_GONE = """
CREATE FUNCTION note_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO memory_gone (namespace, agent_id) SELECT DISTINCT namespace, agent_id FROM gone ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$
"""
NOTE_GONE_TRIGGER = """
CREATE TRIGGER note_gone AFTER DELETE ON memory_vec REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_gone()
"""


REFUSE_CHANGE = """
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'insufficient_privilege';
END $$
"""


def append_only(table: str) -> list[str]:
    """The statements that make a table one that only grows."""
    return [
        REFUSE_CHANGE,
        f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
    ]


def policy(table: str) -> list[str]:
    """The statements that put one table under the rule."""
    rule = f"namespace = current_setting('{SETTING}', true)"
    return [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})",
    ]


def _after_create(table: Table) -> list[str]:
    statements = [] if table.name in UNSCOPED else policy(table.name)
    if table.name == "memory_vec":
        statements.append("ALTER TABLE memory_vec ALTER COLUMN embedding SET STORAGE PLAIN")
        statements += [NOTE_CHANGE, NOTE_CHANGE_TRIGGER, NOTE_GONE, NOTE_GONE_TRIGGER]
    if table.name == "trajectories":
        statements += [FORGET_WITH_EPISODE, FORGET_EPISODE_TRIGGER]
    if table.name == "agent_memories":
        statements += [FORGET_WITH_MEMORY, FORGET_TRIGGER]
    if table.name in APPEND_ONLY:
        statements += append_only(table.name)
    return statements


def listen() -> None:
    """Makes `SQLModel.metadata.create_all` write what the migrations write."""
    for table in SQLModel.metadata.sorted_tables:
        for statement in _after_create(table):
            event.listen(table, "after_create", DDL(statement.replace("%", "%%")))  # type: ignore[no-untyped-call]


listen()
