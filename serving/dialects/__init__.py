"""Wire dialects: each renders requests, results and errors in its own shape."""
