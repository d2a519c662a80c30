"""Who reads what, and what leaves the machine."""
