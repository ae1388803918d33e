"""What is measured: models, sentences, settings and scenarios, in the form of each system."""
