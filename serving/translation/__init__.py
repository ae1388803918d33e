"""Translation of texts: sentences in running batches and what is made of them; no HTTP."""
