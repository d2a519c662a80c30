"""Fictional longitudinal patient records, with questions whose answers and places are known by construction."""
