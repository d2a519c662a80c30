"""Additions, removals, copies, exports, and checks of a library's health"""
