"""The processes in which systems run, and the requests to them; no model is computed here."""
