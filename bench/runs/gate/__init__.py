"""A short check of all speeds: this engine beside its rivals, compared with the last check. It runs
the other benches and measures nothing itself."""
