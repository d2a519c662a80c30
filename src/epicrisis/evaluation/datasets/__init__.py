"""Question sets by name: where each comes from, how it is read, and samples of it."""
