"""What the console says when a page cannot be shown: a page too, for people.

Everything else on this server speaks JSON, so a page is told only to whoever asked for one.

Imports Django only. Used by gate.py, deeds.py and queen_project/urls.py.
"""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

TITLES = {
    400: "That request cannot be understood",
    403: "Not allowed",
    404: "There is no such page",
    429: "Too many attempts",
    500: "Something went wrong",
    503: "Not at the moment",
}


def page(
    request: HttpRequest, status: int, text: str, *, template: str = "console/told.html"
) -> HttpResponse:
    title = TITLES.get(status, TITLES[500])
    content = {"title": title, "text": text, "status": status}
    # Without the request: its user is what could not be asked for.
    return HttpResponse(render_to_string(template, content), status=status)


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that is not of ours, or not of this session. Named by settings.py."""
    return page(request, 403, "That form has run out, or was not ours. Nothing was done.")


def failure(request: HttpRequest, status: int, text: str) -> HttpResponse:
    """A page for a browser, JSON for everybody else."""
    if wants_page(request):
        return page(request, status, "")
    return JsonResponse({"error": text}, status=status)


def wants_page(request: HttpRequest) -> bool:
    return "text/html" in request.headers.get("accept", "")
