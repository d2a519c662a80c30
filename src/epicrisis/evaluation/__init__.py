"""Many questions, recorded: the run loop."""
