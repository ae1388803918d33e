"""What outlives a request and a restart, in a database: SQLite or PostgreSQL by the same code.

A kind of thing that is kept has a module of its own; `store` holds them together. Everything has an
owner, and nothing of one owner is found by another. Nothing here knows of HTTP or of models.
"""
