"""Compute one number for an answer, a ranking or a score."""
