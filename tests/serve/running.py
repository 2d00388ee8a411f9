"""The service as a program on the loopback interface."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import dataclasses, sys
from molslice.cli import main, serve

if __name__ == "__main__":
    chosen = serve.chosen_limits
    serve.chosen_limits = lambda args: dataclasses.replace(chosen(args), **{limits})
    sys.exit(main(sys.argv[1:]))
"""


class Running:
    """A running `molslice serve`."""

    def __init__(self, *words, limits=None, scratch=None):
        """Start the program, with other limits than those that the command line can set.

        Args:
            words: The arguments of `molslice serve`.
            limits: Fields of `Limits`.
            scratch: The folder for temporary files.
        """
        program = PROGRAM.format(limits=limits or {})
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", *words, "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **({"TMPDIR": str(scratch)} if scratch else {})},
            # a script that starts the tests in the background ignores the signal, and so would the program
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"at http://([\d.]+):(\d+)", line):
                self.host, self.port = found[1], int(found[2])
                return
        self.process.wait()
        raise AssertionError("".join(lines))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """Kill the program if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def request(self, method, path, body=None, headers=None):
        """Send a request on a new connection; return the status and the body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def predict(self, smiles):
        """Predict, and return the status and the JSON."""
        status, body = self.request(
            "POST", "/predict", json.dumps({"smiles": smiles}), {"content-type": "application/json"}
        )
        return status, json.loads(body)

    def connect(self):
        """Return a connection without a request."""
        return socket.create_connection((self.host, self.port), timeout=30)

    def workers(self):
        """Return the numbers of the worker processes."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
        return [int(pid) for pid, command in commands.items() if b"spawn_main" in command]

    def end(self, number):
        """Send a signal; return the exit code and what was written to standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def wait_until(condition, seconds=30):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
