"""The URLs that Django serves: none of the API's, which the door of brokers/api answers.

What is not there is answered as JSON, like everything else.

Named by settings.py as the ROOT_URLCONF.
"""

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []


def bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    return JsonResponse({"error": "bad request"}, status=400)


def not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    return JsonResponse({"error": "not found"}, status=404)


def server_error(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"error": "internal error"}, status=500)


handler400 = bad_request
handler404 = not_found
handler500 = server_error
