"""The store: the only part that speaks SQL.

Imports domain, errors, config and frames. Used by services/ and runtime.py.
"""
