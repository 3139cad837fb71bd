"""Notebook research that survives a dead kernel."""
