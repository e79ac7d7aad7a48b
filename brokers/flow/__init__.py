"""What keeps requests moving without deciding anything: gates, admission, announcements.

Imports domain and config. Used by services/ and runtime.py.
"""
