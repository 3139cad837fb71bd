"""Clients of language models whose calls are durable, `ask`, and the embedded model."""
