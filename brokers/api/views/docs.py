"""The routes of the interface's description: the document, the page, the page's assets.

Imports errors, openapi, wire, base. Used by urls.py.
"""

import json
from functools import cache

import yaml
from django.http import HttpResponse
from rest_framework.request import Request

from brokers.api.openapi import page
from brokers.api.openapi.document import document
from brokers.api.views.base import ManagementView
from brokers.errors import RequestError

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "application/openapi+yaml")
ASSET_AGE_S = 86_400


class SchemaView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        asked = self.query().get("format")
        if asked not in (None, "json", "yaml"):
            raise RequestError("format must be json or yaml")
        wanted = [
            one.partition(";")[0].strip().lower()
            for one in request.headers.get("accept", "").split(",")
        ]
        if asked == "yaml" or (asked is None and wanted[0] in YAML_TYPES):
            return HttpResponse(_as_yaml(), content_type="application/yaml")
        return HttpResponse(_as_json(), content_type="application/json")


class PageView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        answer = HttpResponse(page.PAGE.encode(), content_type="text/html; charset=utf-8")
        answer["content-security-policy"] = page.SECURITY_POLICY
        answer["x-content-type-options"] = "nosniff"
        return answer


class AssetView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        name = self.identifier("asset")
        if name not in page.TYPES:
            raise RequestError("Not Found", code="not_found")
        answer = HttpResponse(page.asset(name), content_type=page.TYPES[name])
        answer["cache-control"] = f"max-age={ASSET_AGE_S}"
        answer["x-content-type-options"] = "nosniff"
        return answer


@cache
def _as_json() -> bytes:
    return json.dumps(document(), separators=(",", ":")).encode()


@cache
def _as_yaml() -> bytes:
    """Written by libyaml where there is one: in Python alone it takes seconds."""
    writer = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = json.loads(_as_json())
    text: str = yaml.dump(plain, Dumper=writer, sort_keys=False, allow_unicode=True)
    return text.encode()
