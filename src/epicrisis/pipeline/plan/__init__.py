"""Estimate calls, tokens, dollars and seconds of each strategy before anything is spent."""
