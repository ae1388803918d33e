"""The subjects of measurements: models, sentences, settings and scenarios, in the form of each
system."""
