"""Migrations, one module for each step; a released step is never changed."""
