"""Tests of `epicrisis.corpus.literature`."""
