"""The library: its parts, its journal, its patients, and what is read without a search"""
