"""Factories, servers and documents that several test files share."""
