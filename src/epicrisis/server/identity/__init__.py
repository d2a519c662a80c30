"""Signing in with a hospital's identity provider"""
