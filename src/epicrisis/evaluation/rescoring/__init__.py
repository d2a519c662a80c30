"""Rescoring: which choice each reply states according to three scorings, and the resulting accuracy of a run."""
