"""What is said about routes, by area. A module here has `OPERATIONS`: handler -> Operation.

To describe a route add an entry under its handler's name to the module of its area, or a new
module; nothing needs to be registered. A route that nobody describes is in the document all
the same, with what its row in the table tells.
"""
