"""Passages, vectors and words on the disk: SQLite, Lance, tantivy, and exact and approximate search"""
