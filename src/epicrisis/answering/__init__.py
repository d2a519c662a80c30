"""Answer a question from its evidence: the strategies, their prompts, and the reading of replies."""
