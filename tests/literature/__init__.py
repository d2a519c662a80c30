"""Tests of `epicrisis.literature`."""
