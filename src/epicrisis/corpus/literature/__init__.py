"""Fetch articles from PubMed and Europe PMC for a library."""
