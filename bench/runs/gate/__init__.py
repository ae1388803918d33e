"""A short look at all that is fast: this engine beside its rivals, compared with the last look. It
runs what the benches of the tasks run, and measures nothing of its own."""
