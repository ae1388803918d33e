"""Translation memories: which stored segment fits a sentence, and how its numbers are adapted."""
