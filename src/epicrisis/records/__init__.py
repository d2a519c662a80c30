"""Facts of a record, asked for and listed."""
