"""Prompts that plan questions about facts."""
