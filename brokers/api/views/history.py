"""What the routes that tell history share: the same question gets the same answer for some seconds.

History grows once a minute. A dashboard that many have open asks the same again and again, and
making the answer costs more than finding it.

Imports base. Used by analytics.py, cell.py and status.py.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from brokers.api.views.base import ManagementView


class HistoryView(ManagementView):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        scope: dict[str, Any] = request.scope  # type: ignore[attr-defined]
        door = scope["queen"]
        recent = door["broker"].recent
        key = (type(self), door["tenant"], scope["query_string"])
        kept = recent.find(key)
        if kept is not None:
            return HttpResponse(kept, content_type="application/json")
        asked_at = recent.now()
        answer = super().dispatch(request, *args, **kwargs)
        if isinstance(answer, HttpResponse) and answer.status_code == 200:
            recent.keep(key, answer.content, asked_at)
        return answer
