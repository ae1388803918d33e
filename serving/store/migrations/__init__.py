"""The steps from each database schema to the next, as Alembic runs them."""
