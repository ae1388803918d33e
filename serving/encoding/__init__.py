"""What an encoder reads of texts: vectors, and probabilities of classes; no HTTP."""
