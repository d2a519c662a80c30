"""Rank passages for a question: dense, BM25 and hybrid search, the preflight check, time expressions."""
