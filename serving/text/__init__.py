"""From texts to sentences for a model, and back: nothing between the sentences is lost."""
