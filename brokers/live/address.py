"""Where the socket of the dashboard is: known to the HTTP server, which needs nothing else of it.

Imports nothing of ours. Used by routing.py and queen_project/serving_uvicorn.py.
"""

SOCKET_PATH = "/console/live"
