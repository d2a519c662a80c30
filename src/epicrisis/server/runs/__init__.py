"""Finished runs, their comparisons and their blind reviews: the one part of the server that needs the evaluation."""
