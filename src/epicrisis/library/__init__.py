"""Keep passages in a folder, and find them again."""
