"""Stores data that must outlive a request or a restart in a database: SQLite or PostgreSQL by the
same code.

Each kind of data has a module of its own; `store` brings them together. Everything has an owner,
and no owner can find the data of another. Nothing here depends on HTTP or on models.
"""
