"""Prompts of graders. They are kept apart from the prompts of strategies, whose hash is part of every recipe."""
