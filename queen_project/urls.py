"""The URLs that Django serves: what the door of brokers/api hands on to it.

Whatever goes wrong before a view is reached is answered as JSON, like everything else.

Imports brokers.api.urls. Named by settings.py as the ROOT_URLCONF.
"""

from importlib.util import find_spec

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = []
if find_spec("brokers.api") and find_spec("brokers.api.urls"):
    urlpatterns.append(path("", include("brokers.api.urls")))


def bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    return JsonResponse({"error": "bad request"}, status=400)


def not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    return JsonResponse({"error": "not found"}, status=404)


def server_error(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"error": "internal error"}, status=500)


handler400 = bad_request
handler404 = not_found
handler500 = server_error
