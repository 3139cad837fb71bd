"""Research with a language model: where the texts come from."""
