"""Checks of a deployment on several machines, for `epicrisis doctor --cluster`."""
