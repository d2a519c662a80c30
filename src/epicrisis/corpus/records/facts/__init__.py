"""Structured facts: values, times, lines and documents shared by all formats, and the tables of OMOP and MIMIC."""
