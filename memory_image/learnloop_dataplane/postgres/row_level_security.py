"""Row-level security: a transaction sees the rows of the namespace it named with `app.namespace`, and no others.

FORCE makes the rule hold for the tables' owner too; superusers bypass every policy, so the service works under the
role `learnloop_service`, which is neither. A statement without WHERE, or a forgotten one, cannot cross the border.
"""

from sqlalchemy import DDL, Table, event
from sqlmodel import SQLModel

from learnloop_dataplane.postgres import event_tables, experience_tables, memory_tables

__all__ = [
    "APPEND_ONLY",
    "SERVICE_ROLE",
    "SETTING",
    "UNSCOPED",
    "event_tables",
    "experience_tables",
    "listen",
    "memory_tables",
    "policy",
]

SERVICE_ROLE = "learnloop_service"  # the database role the service works under
SETTING = "app.namespace"  # the setting row-level security compares with
APPEND_ONLY = ("audit_log",)  # no right to change them, and a trigger that refuses their owner too
UNSCOPED = ("tenants",)

# What belongs to a memory goes with it. A trigger once a statement, because a foreign key looks up every row that is
# *inserted*: 10 of the 25 µs a batched store may take. It runs as the caller, under the caller's row-level security.
# A plan may be older than most rows: a join may then compare each with each for minutes. So ids are looked up by an
# array, and words one by one. Locks are taken in the order of the ids, those of `memory_use` first, as feedback does.
FORGET_WITH_MEMORY = """
CREATE FUNCTION forget_with_memory() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$ DECLARE had record; BEGIN
    FOR had IN SELECT namespace, agent_id, array_agg(id) AS ids FROM gone GROUP BY namespace, agent_id LOOP
        PERFORM 1 FROM memory_use WHERE namespace = had.namespace AND memory_id = ANY(had.ids)
            ORDER BY memory_id FOR UPDATE;
        DELETE FROM memory_use WHERE namespace = had.namespace AND memory_id = ANY(had.ids);
        PERFORM forget_words(had.namespace, had.agent_id, had.ids);
        DELETE FROM memory_index
            WHERE namespace = had.namespace AND agent_id = had.agent_id AND memory_id = ANY(had.ids);
    END LOOP;
    RETURN NULL;
END $$
"""
# Before their index rows go or change: these say which stems the memories have. Locks wait for who lists them.
FORGET_WORDS = """
CREATE FUNCTION forget_words(of_namespace text, of_agent text, ids uuid[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE words int[]; owners uuid[]; sizes int[]; total bigint; fewer record; BEGIN
    PERFORM 1 FROM memory_index v WHERE v.namespace = of_namespace AND v.agent_id = of_agent AND v.memory_id = ANY(ids)
        ORDER BY v.memory_id FOR UPDATE;
    SELECT array_agg(get_byte(v.terms, 4 * i + 1) | (get_byte(v.terms, 4 * i + 2) << 8)
            | (get_byte(v.terms, 4 * i + 3) << 16)), array_agg(v.memory_id), array_agg(length(v.terms) / 4),
            sum(get_byte(v.terms, 4 * i)) INTO words, owners, sizes, total
        FROM memory_index v, generate_series(0, length(v.terms) / 4 - 1) AS i
        WHERE v.namespace = of_namespace AND v.agent_id = of_agent AND v.memory_id = ANY(ids) AND v.listed;
    FOR fewer IN SELECT DISTINCT * FROM unnest(words, sizes, owners) AS t(word, size, owner) LOOP
        DELETE FROM memory_words WHERE namespace = of_namespace AND agent_id = of_agent
            AND word = fewer.word AND stems = fewer.size AND memory_id = fewer.owner;
    END LOOP;
    FOR fewer IN SELECT word, count(DISTINCT owner) AS n FROM unnest(words, owners) AS t(word, owner) GROUP BY word
        UNION ALL SELECT -1, count(DISTINCT owner) FROM unnest(owners) AS t(owner)
        UNION ALL SELECT -2, total ORDER BY 1 LOOP
        UPDATE memory_word_counts SET memories = greatest(memories - fewer.n, 0)
            WHERE namespace = of_namespace AND agent_id = of_agent AND word = fewer.word AND fewer.n > 0;
        DELETE FROM memory_word_counts WHERE namespace = of_namespace AND agent_id = of_agent AND word = fewer.word
            AND word >= 0 AND memories = 0;
    END LOOP;
END $$
"""
FORGET_TRIGGER = """
CREATE TRIGGER forget_with_memory AFTER DELETE ON agent_memories REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_with_memory()
"""
FORGET_WITH_EPISODE = """
CREATE FUNCTION forget_with_episode() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$ DECLARE had record; BEGIN
    FOR had IN SELECT namespace, array_agg(trajectory_id) AS ids FROM gone GROUP BY namespace LOOP
        DELETE FROM training_transitions WHERE namespace = had.namespace AND trajectory_id = ANY(had.ids);
    END LOOP;
    RETURN NULL;
END $$
"""
FORGET_EPISODE_TRIGGER = """
CREATE TRIGGER forget_with_episode AFTER DELETE ON trajectories REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_with_episode()
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
    if table.name == "memory_index":
        statements.append("ALTER TABLE memory_index ALTER COLUMN embedding SET STORAGE PLAIN")
    if table.name == "trajectories":
        statements += [FORGET_WITH_EPISODE, FORGET_EPISODE_TRIGGER]
    if table.name == "agent_memories":
        statements += [FORGET_WORDS, FORGET_WITH_MEMORY, FORGET_TRIGGER]
    if table.name in APPEND_ONLY:
        statements += append_only(table.name)
    return statements


def listen() -> None:
    """Makes `SQLModel.metadata.create_all` write what the migrations write."""
    for table in SQLModel.metadata.sorted_tables:
        for statement in _after_create(table):
            event.listen(table, "after_create", DDL(statement.replace("%", "%%")))  # type: ignore[no-untyped-call]


listen()
