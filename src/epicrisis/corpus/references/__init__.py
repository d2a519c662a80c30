"""Entries of reference managers, and the text formats that hold them"""
