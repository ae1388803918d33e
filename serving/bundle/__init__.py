"""Reads and checks the files of a bundle folder; opens no session."""
