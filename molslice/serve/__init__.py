"""The web page and the JSON API of `molslice serve`.

The process that answers requests computes nothing. Worker processes load the models and do all chemistry, so
that a molecule that takes long, or crashes a library, delays and harms no other request.

Modules:
    limits: What one client may ask for.
    process: Starts, calls and ends a worker process.
    worker: What a worker process computes with the loaded models.
    batching: The bounded queue of requests, whose molecules are predicted together.
    file_jobs: Predicts uploaded files, one after the other.
    schemas: What requests and answers contain.
    app: The application with all paths.
    guard: Rejects cross-origin, oversized and slow requests; adds security headers.
    metrics: Counters for Prometheus.
    server: Starts the server and ends it.
    static: The page. `static/vendor` has the editor of molecules, see `NOTICE.txt` there.

Imports: `explanation`, `inference` and the packages below them, in worker processes only; the extra `serve`.

To add a path that computes, add a function to `TASKS` in `worker` and a path to `app`.
"""
