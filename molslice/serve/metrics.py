"""Counters of the service in the format of Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self._registry}
        sizes = {"buckets": SIZES, **options}
        self._requests = Counter("molslice_requests", "Answered requests", ["path", "status"], **options)
        self._seconds = Histogram(
            "molslice_request_duration_seconds", "Time to the answer", ["path"], buckets=SECONDS, **options
        )
        self._molecules = Counter(
            "molslice_molecules", "Predicted molecules", ["model", "outcome"], **options
        )
        self._batch_molecules = Histogram("molslice_batch_molecules", "Molecules of a batch", **sizes)
        self._batch_requests = Histogram("molslice_batch_requests", "Requests of a batch", **sizes)
        self._waiting = Gauge("molslice_waiting_molecules", "Molecules in the queue", **options)
        self._starts = Counter("molslice_worker_starts", "Starts of worker processes", **options)
        self._counted_starts = 0

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; the path has its parameters as names, such as `/files/{job_id}`."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_molecules(self, model: str, predicted: int, failed: int) -> None:
        """Count the rows of an answer."""
        self._molecules.labels(model, "predicted").inc(predicted)
        self._molecules.labels(model, "failed").inc(failed)

    def count_batch(self, requests: int, molecules: int) -> None:
        """Count a batch of requests."""
        self._batch_requests.observe(requests)
        self._batch_molecules.observe(molecules)

    def text(self, waiting: int, starts: int) -> bytes:
        """Return all counters as text, with the molecules in the queue and the starts of workers so far."""
        self._waiting.set(waiting)
        self._starts.inc(starts - self._counted_starts)
        self._counted_starts = starts
        return generate_latest(self._registry)
