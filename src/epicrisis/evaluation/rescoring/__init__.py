"""Score saved replies again by other scoring rules."""
