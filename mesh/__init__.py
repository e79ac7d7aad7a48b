"""Hints between brokers: frames over TCP that say "look", never "here is a message".

The mesh knows neither Django nor the broker: what it needs is handed in. A hint may be
lost, doubled or late, and the periodic floor that re-reads the database heals it.
"""
