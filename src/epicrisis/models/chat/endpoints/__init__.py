"""What speaks to an OpenAI-compatible endpoint: addresses, bodies, replies, usage, and every way it fails."""
