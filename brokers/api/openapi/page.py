"""The page on which the document is read: Swagger UI, out of a pinned package.

Nothing is loaded from elsewhere, and no other page may put scripts into this one. The page
asks for the document as any client does; where tokens are needed its reader gives one, which
stays in the page.

Imports nothing of ours. Used by api/views/docs.py.
"""

from functools import cache
from importlib.resources import files

PACKAGE = "drf_spectacular_sidecar"
FOLDER = "static/drf_spectacular_sidecar/swagger-ui-dist"
TYPES = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "favicon-32x32.png": "image/png",
    "start.js": "text/javascript; charset=utf-8",
}
SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; connect-src 'self'; form-action 'none'; frame-ancestors 'none';"
    " base-uri 'none'"
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Queen on PostgreSQL: the HTTP interface</title>
<link rel="icon" href="/api/docs/assets/favicon-32x32.png">
<link rel="stylesheet" href="/api/docs/assets/swagger-ui.css">
</head>
<body>
<form id="token" hidden>
<label>Token <input name="token" type="password" autocomplete="off"></label>
<button>Read with it</button>
</form>
<div id="document"></div>
<script src="/api/docs/assets/swagger-ui-bundle.js"></script>
<script src="/api/docs/assets/start.js"></script>
</body>
</html>
"""

START = """"use strict";
let token = "";
const form = document.getElementById("token");
async function show() {
  const headers = token ? { authorization: "Bearer " + token } : {};
  const answer = await fetch("/api/schema", { headers });
  form.hidden = answer.ok && !token;
  if (!answer.ok) return;
  SwaggerUIBundle({
    spec: await answer.json(),
    dom_id: "#document",
    deepLinking: true,
    docExpansion: "none",
    filter: true,
    requestInterceptor: (request) => {
      if (token) request.headers.authorization = "Bearer " + token;
      return request;
    },
  });
}
form.addEventListener("submit", (event) => {
  event.preventDefault();
  token = form.elements.token.value.trim();
  show();
});
show();
"""


@cache
def asset(name: str) -> bytes:
    """The bytes of one of TYPES."""
    if name == "start.js":
        return START.encode()
    return files(PACKAGE).joinpath(FOLDER, name).read_bytes()
