"""Durable operations: each is a question to the journal first, and to the world only then."""
