"""Question sets by name: their sources, how they are read, and samples of them."""
