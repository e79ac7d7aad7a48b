"""The routes of the interface's own description.

The page and its assets are for everybody, as a browser sends no token for them; the document
that the page shows needs one.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

DOCS_ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/schema", Level.READ_ONLY, Kind.DRF, "openapi_schema", False, head=True),
    Route("GET", "/api/docs", Level.PUBLIC, Kind.DRF, "openapi_page", False, head=True),
    Route(
        "GET",
        "/api/docs/assets/:asset",
        Level.PUBLIC,
        Kind.DRF,
        "openapi_asset",
        False,
        head=True,
    ),
)
