"""Tests of the shipped fakes."""
