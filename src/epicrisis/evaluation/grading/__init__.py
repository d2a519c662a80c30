"""Which of two answers is better: blind pairs, verdicts of people and of models, and how far these agree."""
