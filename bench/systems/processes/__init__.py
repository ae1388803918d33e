"""The processes in which systems run, and what is asked of them; no model is computed here."""
