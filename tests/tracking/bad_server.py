"""A small HTTP server that fails in the ways that networks and busy servers do, alone or in front of a real one."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]
DROPPED = "dropped"
"""The connection is cut before the request is carried out."""
HANGS = "hangs"
"""No answer comes, until the server is closed."""
Fault = str | int | None
"""One of these, a status to answer with, or nothing."""


class BadServer:
    """Listens on a free port of this machine.

    Args:
        target: Port of the server that requests are passed on to; None for an empty answer to each.

    Attributes:
        spoil: What goes wrong with a request, by its path.
        before: Called with the path of each request before it is passed on; may wait.
        paths: Paths of all requests so far.
    """

    def __init__(self, target: int | None) -> None:
        self.spoil: Callable[[str], Fault] = lambda path: None
        self.before: Callable[[str], object] = lambda path: None
        self.paths: list[str] = []
        self._target = target
        self._closing = threading.Event()
        self._counting = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = False  # closing waits for what is under way
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def count(self, end: str) -> int:
        """Requests so far whose path ends so."""
        return sum(path.endswith(end) for path in self.paths)

    def __enter__(self) -> BadServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """One request for each connection, so that nothing is left open."""

            def answer(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                with outer._counting:
                    outer.paths.append(path)
                    fault = outer.spoil(path)
                outer.before(path)
                if fault == HANGS:
                    outer._closing.wait()
                if fault in (HANGS, DROPPED):
                    return
                try:
                    status, body = (fault, b"failed") if isinstance(fault, int) else outer._passed_on(self, content)
                except (OSError, http.client.HTTPException):  # the server behind is dead, and so is this one then
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *words: Any) -> None:
                """Nothing is said."""

        return Handler

    def _passed_on(self, handler: BaseHTTPRequestHandler, content: bytes) -> Answer:
        """Answer of the server behind."""
        if self._target is None:
            return 200, b"{}"
        connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=600)
        try:
            headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
            headers["Host"] = f"127.0.0.1:{self._target}"
            connection.request(handler.command, handler.path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
