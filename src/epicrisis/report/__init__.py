"""Finished runs as a page to read: tables first, each plot with its data. Computes no figure."""
