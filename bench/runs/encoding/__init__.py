"""Speed of encoders beside rivals and over HTTP."""
