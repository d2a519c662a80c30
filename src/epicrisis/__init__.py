"""Answers medical questions from long evidence. The public face; see README.md."""

__version__ = "0.1.0"
