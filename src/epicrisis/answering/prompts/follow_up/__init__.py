"""The prompt that completes a follow-up question."""
