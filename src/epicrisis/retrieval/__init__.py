"""From a question to a ranking: dense, BM25, hybrid, and the preflight check."""
