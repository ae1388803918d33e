"""The measured systems, and the processes in which they run. Nothing here knows tables."""
