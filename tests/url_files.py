"""Files at URLs: in memory, in an object store, and on a web server of this machine."""

import functools
import http.server
import threading
from contextlib import contextmanager

import fsspec


def put(url, data):
    """Write a file at a URL."""
    with fsspec.open(url, "wb") as file:
        file.write(data)


def get(url):
    """Return the bytes of a file at a URL."""
    with fsspec.open(url, "rb") as file:
        return file.read()


def names(folder):
    """Return the sorted names of the files in a folder at a URL."""
    system, path = fsspec.url_to_fs(folder)
    system.invalidate_cache()
    return sorted(name.rpartition("/")[2] for name in system.ls(path, detail=False))


@contextmanager
def served(folder):
    """Serve a folder on this machine, and yield its URL."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass
