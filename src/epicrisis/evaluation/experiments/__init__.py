"""One file for each figure or family of experiments: its cases, and the tables of their records."""
