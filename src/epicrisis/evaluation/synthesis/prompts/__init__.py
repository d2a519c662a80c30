"""Prompts that write questions and solutions. They are not part of the recipe of a run."""
