"""Suggestions of users, and answers to evaluations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "suggestions",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("source", sa.String(35), nullable=False),
        sa.Column("target", sa.String(35), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("suggestion", sa.Text, nullable=False),
    )
    op.create_index("ix_suggestions_owner", "suggestions", ["owner", "number"])
    op.create_table(
        "evaluations",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
    )
    op.create_index("ix_evaluations_owner", "evaluations", ["owner", "created", "id"])
