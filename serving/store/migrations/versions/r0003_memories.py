"""Translation memories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of translation memories."""
    op.create_table(
        "memories",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("source", sa.String(35), nullable=False),
        sa.Column("target", sa.String(35), nullable=False),
        sa.Column("segment_count", sa.Integer, nullable=False),
    )
    op.create_index("ix_memories_owner", "memories", ["owner", "created", "id"])
    op.create_table(
        "memory_segments",
        sa.Column(
            "memory_id",
            sa.String(36),
            sa.ForeignKey("memories.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
    )
    op.create_table(
        "memory_jobs",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("memory_id", sa.String(36)),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("content_length", sa.BigInteger, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
        sa.UniqueConstraint("token", name="memory_jobs_token"),
    )
    op.create_index("ix_memory_jobs_owner", "memory_jobs", ["owner", "created"])
