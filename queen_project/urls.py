"""The URLs that Django serves: those of the console. The API's are answered by the door.

Whatever goes wrong before a view is reached is told as a page to a browser, else as JSON, like
everything else.

Imports brokers.live.urls, brokers.admin.{answers,registered}. Named by settings.py as the
ROOT_URLCONF.
"""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from brokers.admin import registered
from brokers.admin.answers import failure

assert registered.AREAS  # importing it has registered them, before their addresses are asked for

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("brokers.live.urls")),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
]


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return failure(request, 400, "bad request")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return failure(request, 403, "forbidden")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return failure(request, 404, "not found")


def server_error(request: HttpRequest) -> HttpResponse:
    return failure(request, 500, "internal error")


handler400 = bad_request
handler403 = forbidden
handler404 = not_found
handler500 = server_error
