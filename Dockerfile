# The web page and the JSON API of molslice: see docs/guides/serving.md.
FROM python:3.11-slim

# An index with CPU builds of torch makes the image several gigabytes smaller: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

# RDKit draws with these libraries
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libexpat1 libxext6 libxrender1 \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY molslice ./molslice
RUN pip install --constraint constraints.txt ".[serve]"

RUN useradd --create-home --uid 10001 molslice
USER molslice
WORKDIR /models

# Inside of the container the service listens on all addresses; compose.yaml opens it on the loopback address only.
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["molslice", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["gap-xtb"]
