"""From texts to sentences for a model, and back: nothing between is lost; no model."""
