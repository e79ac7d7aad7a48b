"""A wish for another protocol that is declined leaves a plain request, whose body is read.

Clients that speak HTTP/2 ask for it with the first request on a connection, whatever that is. The
parser takes all that follows such a head for the other protocol: a body would be lost, and what
came of it later would be the next request. So the parser is told the head again, without the wish.

Imports nothing of ours. Used by serving_short.py.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class PlainAgain(HttpToolsProtocol):
    """uvicorn's protocol; whoever overrides `on_headers_complete` asks `declines` first."""

    # The head of a request whose wish is declined, as it is parsed again.
    declined = b""

    def parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _feed(self, data: bytes) -> bytes:
        """Returns what is to be parsed next: nothing, but for a request that is told again."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.declined:
                head, self.declined = self.declined, b""
                return head + data[upgrade.args[0] :]
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        return b""

    def declines(self) -> bool:
        """Whether the head that is complete now is going to be told again."""
        parser = self.parser
        method = parser.get_method()
        if not parser.should_upgrade() or method == b"CONNECT" or self._should_upgrade():
            return False
        lines = [b"%b %b HTTP/%b" % (method, self.url, parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.declined = b"\r\n".join([*lines, b"", b""])
        return True
