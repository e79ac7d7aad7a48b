"""This description itself."""

from brokers.api.openapi.words import Operation, Query, loose, one_of

TAG = "description"

OPERATIONS = {
    "openapi_schema": Operation(
        "This document",
        "As JSON, or as YAML where `Accept` or `format` ask for it.",
        query=(Query("format", one_of("json", "yaml")),),
        answers={200: loose("", ("openapi", "info", "paths"))},
        also=("application/yaml",),
    ),
    "openapi_page": Operation("This document as a page", answers={200: "text/html"}),
    "openapi_asset": Operation("What the page is made of", answers={200: "*/*"}),
}
