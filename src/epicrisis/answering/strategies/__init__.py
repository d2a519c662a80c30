"""The answering strategies: each module is one, and describes it in `STRATEGY`."""
