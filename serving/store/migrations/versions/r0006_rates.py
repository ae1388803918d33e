"""Rate limits per minute that servers share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "rates",
        sa.Column("bucket", sa.LargeBinary(32), primary_key=True),
        sa.Column("missing_s", sa.Float, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
