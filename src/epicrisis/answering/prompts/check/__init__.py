"""Prompts that check claims."""
