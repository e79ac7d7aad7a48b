"""The services: one file a verb or noun, one coroutine a request.

A service takes the broker and one request value and returns an answer value. Control flow
lives here; procedures decide.

Imports flow, store, domain, errors. Used by api/, admin/ and management commands.
"""
