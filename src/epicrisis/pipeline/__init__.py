"""Assembling an answer: the parts, the search, the strategy and the plan."""
