"""Forget patients: remove them from a library and from every folder that quotes it, and prove it by a scan."""
