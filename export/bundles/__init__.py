"""Makes bundles of this project's checkpoints, and checkpoints of bundles, with card and figures.
Reads no checkpoints of other projects."""
