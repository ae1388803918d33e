"""A short check of all speeds: this engine beside its rivals, compared with the last check. It runs
the benches of the tasks and measures nothing of its own."""
