"""Glossaries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables of glossaries."""
    op.create_table(
        "glossaries",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_index("ix_glossaries_owner", "glossaries", ["owner", "created", "id"])
    op.create_table(
        "glossary_dictionaries",
        sa.Column(
            "glossary_id",
            sa.String(36),
            sa.ForeignKey("glossaries.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("source", sa.String(35), primary_key=True),
        sa.Column("target", sa.String(35), primary_key=True),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("entry_count", sa.Integer, nullable=False),
        sa.Column("entries", sa.Text, nullable=False),
    )
