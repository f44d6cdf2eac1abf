"""A small HTTP server that answers as a test says, e.g. as networks and busy servers fail."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, bytes] | tuple[int, bytes, dict[str, str]] | None
"""Status, content and further headers, or None to cut the connection."""


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler, bytes], Answer]) -> Iterator[str]:
    """Listen on a free port of this machine, and yield the address.

    Args:
        answer: Called with each request and its content.
    """

    class Handler(BaseHTTPRequestHandler):
        """One request for each connection, so that nothing is left open."""

        wbufsize = -1  # an answer in one packet: two wait 40 ms for each other

        def reply(self) -> None:
            answered = answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            if answered is None:
                return
            status, content, *more = answered
            self.send_response(status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
            for name, value in headers.items() | (more[0].items() if more else ()):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = reply  # noqa: N815

        def log_message(self, *words: object) -> None:
            """Nothing is said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
