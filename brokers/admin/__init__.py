"""The console's pages that act: Django admin over the broker's tables, and who may see them.

A page reads by the ORM, a page at a time, or asks a service; whatever it changes it changes by
a service, in the broker's loop (deeds.py), so that peers hear of it and an audit entry stays.
"""
