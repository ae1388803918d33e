"""The API of text-embeddings-inference: its routes and the shape of its bodies."""
