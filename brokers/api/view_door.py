"""The way from the door to a view: the management routes without Django's request handling.

The door has routed, authorised and read the body; all that a view needs stands in
`scope["queen"]`. Middleware for sessions and forms, another routing and a thread of its own for
each request would cost more than most answers, so a view is called here directly, in one of a
bounded number of threads. What the table does not know goes to Django as it came.

Imports urls, wire. Used by queen_project/asgi.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from brokers.api.urls import VIEWS
from brokers.api.wire import Receive, Reply, Scope, Send, send_reply

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# A view waits for its service most of the time. What is beyond waits for a thread.
THREADS_MAX = 64
# What send_reply writes by itself.
WRITTEN_AGAIN = ("content-type", "content-length")


class Views:
    """An ASGI application around Django's, with a shorter way for what the door hands over."""

    def __init__(self, django_application: Application) -> None:
        self._django = django_application
        self._views = {handler: view.as_view() for handler, view in VIEWS.items()}
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="view")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        queen = scope.get("queen")
        if queen is None:
            await self._django(scope, receive, send)
            return
        view = self._views[queen["route"].handler]
        loop = asyncio.get_running_loop()
        reply = await loop.run_in_executor(self._threads, _answer, view, scope)
        await send_reply(send, reply, head=scope["method"] == "HEAD")


def _answer(view: Callable[[HttpRequest], HttpResponseBase], scope: Scope) -> Reply:
    request = HttpRequest()
    request.method = scope["method"]
    request.scope = scope  # type: ignore[attr-defined]
    for name, value in scope["headers"]:
        key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        request.META[key] = value.decode("latin-1")
    response: Any = view(request)
    if hasattr(response, "render"):
        response = response.render()
    return Reply(
        response.status_code,
        response.content,
        content_type=response.headers["content-type"].encode("latin-1"),
        headers=tuple(
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.items()
            if name.lower() not in WRITTEN_AGAIN
        ),
    )
