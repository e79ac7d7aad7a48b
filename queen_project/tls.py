"""TLS on the listener: one certificate, read again when its file changes.

Connections that are open keep what they have; new handshakes use what lies in the files now,
so that a renewed certificate needs no restart. Files that cannot be read leave the old one.

Imports config_checks. Used by serving_uvicorn.py and serving_daphne.py.
"""

import logging
import os
import ssl

from brokers.config_access import ListenerConfig
from queen_project.config_checks import no_password

logger = logging.getLogger(__name__)


class Certificate:
    def __init__(self, config: ListenerConfig) -> None:
        self.cert, self.key = config.tls_cert, config.tls_key
        self._stamp = self._stamp_now()

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 at least. The start has checked the files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.cert, self.key, password=no_password)

    def changed(self) -> bool:
        """Whether the files are others than at the last look."""
        stamp = self._stamp_now()
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        return True

    def renew(self, context: ssl.SSLContext) -> None:
        if not self.changed():
            return
        try:
            # First into another: half a pair must not replace a whole one.
            self.context()
            self.load(context)
        except (OSError, ssl.SSLError, ValueError) as error:
            logger.error("the new TLS certificate cannot be used, the old one stays: %s", error)
        else:
            logger.info("the TLS certificate was renewed")

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            return os.stat(self.cert).st_mtime_ns, os.stat(self.key).st_mtime_ns
        except OSError:
            return None
