"""What came of runs: evaluation, comparisons and curves. It changes no run."""
