"""Quality figures from texts and numbers alone, without a model or a run."""
