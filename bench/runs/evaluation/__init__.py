"""What translations are worth: scores of systems, bundles at their speed, and what is repaired.
Nothing here is compared with another engine."""
