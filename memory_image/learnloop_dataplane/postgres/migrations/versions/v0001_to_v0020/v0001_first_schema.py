"""The first schema: experience, rewards, memories, artifacts and training runs, all under row-level security."""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import HALFVEC
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SCOPED = (
    "agents",
    "reward_policy_revisions",
    "trajectories",
    "training_transitions",
    "reward_statistics",
    "reward_history",
    "agent_memories",
    "memory_vec",
    "artifacts",
    "training_runs",
    "model_checkpoints",
    "dead_letters",
)


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    _experience()
    _rewards()
    _memories()
    _registry()
    for table in SCOPED:
        rule = "namespace = current_setting('app.namespace', true)"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")


def _experience() -> None:
    op.create_table(
        "tenants",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace"),
    )
    op.create_table(
        "agents",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reward_policy", sa.Text(), nullable=True),
        sa.Column("reward_policy_revision", sa.Text(), nullable=True),
        sa.Column("trajectories", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rewarded", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_trajectory_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("first_episodes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("first_return_sum", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("training_request", sa.Text(), nullable=True),
        sa.Column("training_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )
    op.create_table(
        "trajectories",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("episode_id", sa.Text(), nullable=False),
        sa.Column("model_deployment", sa.Text(), nullable=True),
        sa.Column("policy_revision", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("episode_return", sa.Double(), nullable=False),
        sa.Column("success", sa.Boolean(), nullable=True),
        sa.Column("outcome_values", JSONB(), nullable=False),
        sa.Column("retrieval_ids", JSONB(), nullable=False),
        sa.Column("labels", JSONB(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("reward_policy_revision", sa.Text(), nullable=True),
        sa.Column("remembered", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id"),
    )
    op.create_index("ix_trajectories_agent", "trajectories", ["namespace", "agent_id", "seq"])
    op.create_index("ix_trajectories_received", "trajectories", ["namespace", "received_at"])
    op.create_index(
        "ix_trajectories_unremembered", "trajectories", ["namespace", "seq"], postgresql_where=sa.text("NOT remembered")
    )
    op.create_index(
        "ix_trajectories_unrewarded",
        "trajectories",
        ["namespace", "agent_id", "seq"],
        postgresql_where=sa.text("reward IS NULL"),
    )
    op.create_table(
        "training_transitions",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("steps", JSONB(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "trajectory_id"],
            ["trajectories.namespace", "trajectories.trajectory_id"],
            name="fk_transitions_trajectory",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id"),
    )
    op.create_index("ix_dead_letters_created", "dead_letters", ["namespace", "created_at"])


def _rewards() -> None:
    op.create_table(
        "reward_policy_revisions",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("spec", JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", "revision"),
    )
    op.create_table(
        "reward_statistics",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("reward_policy", sa.Text(), nullable=False),
        sa.Column("reward_policy_revision", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("mean", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("m2", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "reward_policy", "reward_policy_revision"),
    )
    op.create_table(
        "reward_history",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("reward_policy", sa.Text(), nullable=False),
        sa.Column("reward_policy_revision", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("components", JSONB(), nullable=False),
        sa.Column("raw_reward", sa.Double(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id", "reward_policy", "reward_policy_revision"),
    )
    op.create_index("ix_rewards_agent", "reward_history", ["namespace", "agent_id", "created_at"])
    op.create_index("ix_rewards_created", "reward_history", ["namespace", "created_at"])
    op.create_index(
        "ix_rewards_unpublished",
        "reward_history",
        ["namespace", "created_at"],
        postgresql_where=sa.text("published_at IS NULL"),
    )


def _memories() -> None:
    op.create_table(
        "agent_memories",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("memory_type", sa.Text(), nullable=False),
        sa.Column("content", JSONB(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("importance", sa.Double(), server_default=sa.text("0.5"), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id"),
        sa.UniqueConstraint("namespace", "agent_id", "idempotency_key", name="uq_memories_idempotency"),
    )
    op.create_index("ix_memories_agent", "agent_memories", ["namespace", "agent_id", "source", "created_at"])
    op.create_index("ix_memories_created", "agent_memories", ["namespace", "source", "created_at"])
    op.create_table(
        "memory_vec",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("memory_type", sa.Text(), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=False),
        sa.Column("importance", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lexemes", TSVECTOR(), nullable=False),
        sa.Column("embedding", HALFVEC(1024), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "memory_id"],
            ["agent_memories.namespace", "agent_memories.id"],
            name="fk_memory_vec_memory",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "memory_id"),
    )
    op.create_index("ix_memory_vec_memory", "memory_vec", ["namespace", "memory_id"])
    op.execute("ALTER TABLE memory_vec ALTER COLUMN embedding SET STORAGE PLAIN")


def _registry() -> None:
    op.create_table(
        "artifacts",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "sha256"),
    )
    op.create_table(
        "training_runs",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("heartbeat", JSONB(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("manifest", JSONB(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "job"),
    )
    op.create_table(
        "model_checkpoints",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("training_iteration", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_path", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "job"],
            ["training_runs.namespace", "training_runs.job"],
            name="fk_checkpoints_run",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("namespace", "id"),
    )
    op.create_index("ix_checkpoints_job", "model_checkpoints", ["namespace", "job", "seq"])


def downgrade() -> None:
    for table in (*reversed(SCOPED), "tenants"):
        op.execute(f"DROP TABLE {table} CASCADE")
