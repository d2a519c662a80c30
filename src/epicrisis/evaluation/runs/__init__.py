"""Ask the cases of a run, and keep one record for each in its folder."""
