"""Retrievers and tasks for other frameworks. Each module needs the extra of its framework."""
