"""Alarms sent to another service: signed, retried, bounded."""

import hashlib
import hmac
import logging
import queue
import threading
import time
import urllib.request
from typing import Any

from roughformer.serve.json_bodies import encode
from roughformer.serve.metrics import Metrics

log = logging.getLogger("roughformer.serve")
_MAX_WAITING = 1000  # messages; beyond it new ones are dropped, and counted
_TRIES = 5
_PAUSE = 0.5  # seconds before the second try, then twice as long each time
_TIMEOUT = 5.0  # seconds for an answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A signed message goes to the address that was configured, and nowhere else."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        """Refuse."""


class Webhook:
    """Post each change of an alarm to ``url``, in order, from a thread of its own.

    With a ``secret``, the header ``X-Roughformer-Signature`` is ``t=SECONDS,v1=HEX``: the
    HMAC-SHA256 of ``SECONDS.BODY``. Whatever is not answered 2xx is tried again, five times in all.
    """

    def __init__(self, url: str, secret: str | None, metrics: Metrics) -> None:
        """Start the thread; it ends with the process."""
        self._url, self._secret, self._sent = url, secret, metrics.webhooks
        self._waiting: queue.Queue[bytes] = queue.Queue(_MAX_WAITING)
        self._opener = urllib.request.build_opener(_NoRedirect)
        threading.Thread(target=self._run, name="webhook", daemon=True).start()

    def put(self, message: dict[str, Any]) -> None:
        """Queue a message; never waits."""
        try:
            self._waiting.put_nowait(encode(message))
        except queue.Full:
            self._sent.labels("dropped").inc()

    def flush(self, seconds: float) -> None:
        """Wait until all is sent or given up, at most so long."""
        until = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.02)

    def _run(self) -> None:
        while True:
            body = self._waiting.get()
            for attempt in range(_TRIES):
                if attempt:
                    time.sleep(_PAUSE * 2 ** (attempt - 1))
                try:
                    self._post(body)
                    self._sent.labels("sent").inc()
                    break
                except Exception as error:  # HTTP status, connection, timeout: all are tried again
                    failure = error
            else:
                self._sent.labels("failed").inc()
                log.warning("the webhook was not delivered: %s", failure)
            self._waiting.task_done()

    def _post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        if self._secret is not None:
            now = str(int(time.time()))
            signed = hmac.new(self._secret.encode(), f"{now}.".encode() + body, hashlib.sha256)
            headers["X-Roughformer-Signature"] = f"t={now},v1={signed.hexdigest()}"
        request = urllib.request.Request(self._url, body, headers)
        with self._opener.open(request, timeout=_TIMEOUT):
            pass
