"""Quality figures computed from texts and numbers only, without a model or a run."""
