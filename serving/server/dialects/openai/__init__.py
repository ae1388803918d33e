"""OpenAI's completions and models: their routes and the shape of their bodies."""
