"""Speed of encoders, which read texts and decode none, beside rivals and over HTTP."""
