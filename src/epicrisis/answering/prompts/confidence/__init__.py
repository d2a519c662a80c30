"""Prompts of `map_confidence`: map replies with a rationale and a confidence."""
