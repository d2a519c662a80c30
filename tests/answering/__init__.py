"""Tests of the strategies and of what they are made from."""
