"""Draw tables, plots, answers and search results. Computes no figure."""
