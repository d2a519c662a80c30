"""Readers of files by their format, and the process that reads dangerous ones"""
