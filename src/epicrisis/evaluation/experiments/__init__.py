"""One file a figure of the papers: the cases it asks, and the tables that come of their records."""
