"""Tests of the checks of a deployment on several machines."""
