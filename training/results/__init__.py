"""Results of runs: evaluation, comparisons and curves. Nothing here changes a run."""
