"""What one client may ask for."""

from dataclasses import dataclass

from molslice.errors import MolsliceError

MAX_SECONDS = 86_400  # `Connection.poll` takes 2,147,483 s at most


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the service.

    Attributes:
        molecules: Maximum number of molecules of a request.
        waiting: Maximum number of molecules in the queue; a request beyond it is answered with status 429.
        explanations_waiting: Maximum number of explanations in their queue.
        seconds: Maximum time for a request, in the queue and in the model, above 0 and at most `MAX_SECONDS`.
        body_bytes: Maximum size of a request without a file.
        file_bytes: Maximum size of a file, also after it is unpacked.
        file_rows: Maximum number of rows of a file.
        files_waiting: Maximum number of files that wait for their prediction.
        files_kept: Maximum number of files whose predictions are kept; the oldest are deleted first.
        receive_seconds: Maximum time to receive the head of a request, or its body without a file.
        upload_seconds: Maximum time to receive a file.
        send_seconds: Maximum time for a client to take the next 50 kB of an answer.
        connections: Maximum number of connections; a request on another one is answered with status 503.

    Raises:
        MolsliceError: `seconds` is out of its range.
    """

    molecules: int = 1_000
    waiting: int = 4_000
    explanations_waiting: int = 32
    seconds: float = 30.0
    body_bytes: int = 4_000_000
    file_bytes: int = 100_000_000
    file_rows: int = 1_000_000
    files_waiting: int = 8
    files_kept: int = 32
    receive_seconds: float = 10.0
    upload_seconds: float = 600.0
    send_seconds: float = 30.0
    connections: int = 512

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= MAX_SECONDS:
            raise MolsliceError(f"seconds must be above 0 and at most {MAX_SECONDS:,}, got {self.seconds}")
