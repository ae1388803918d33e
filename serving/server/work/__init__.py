"""The steps of a request after its dialect: choice of the model, limits, queueing and counting.
Contains nothing about dialects."""
