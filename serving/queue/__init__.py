"""The request queue, tickets and the threads that drive engines, for any task; no model, no
HTTP."""
