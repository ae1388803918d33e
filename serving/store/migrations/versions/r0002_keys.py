"""Keys, their use, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("disabled", sa.Float),
        sa.Column("characters_a_month", sa.BigInteger),
        sa.Column("requests_a_minute", sa.Integer),
        sa.UniqueConstraint("digest", name="api_keys_digest"),
    )
    op.create_table(
        "usage",
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("task", sa.String(32), primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("characters", sa.BigInteger, nullable=False),
    )
    op.create_index("usage_day", "usage", ["day"])
    op.create_table(
        "usage_writers",
        sa.Column("writer", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )
