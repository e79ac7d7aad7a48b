"""What browsers are told with every page of the console, and which Host they may ask for.

The API has neither cookies nor pages, so none of it is for the API: its answers are JSON and
go out as they are. A page may load what this server serves and nothing else, is shown in no
foreign frame, and is kept by no cache.

Imports Django only. Named by settings.py as a middleware.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = (
    "default-src 'self'; img-src 'self' data:;"
    " object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def console_headers(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        request.get_host()  # raises DisallowedHost, which is a 400
        response = get_response(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-store")
        if request.is_secure():
            response.headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        return response

    return middleware
