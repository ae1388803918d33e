"""Translation memories: the search for the stored segment that fits a sentence, and the adaptation
of its numbers."""
