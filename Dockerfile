# The web service on onnxruntime: no torch inside. docs/guides/container.md
#   docker build --tag hgclr .
#   docker run --publish 127.0.0.1:8000:8000 --volume ./my-int8:/model:ro hgclr
# The official image python:3.11-slim (3.11.16 on Debian trixie, all architectures) as it was in August 2026.
ARG PYTHON=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
FROM ${PYTHON} AS build
WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src src
RUN python -m venv /opt/hgclr \
    && /opt/hgclr/bin/pip install --no-cache-dir --require-hashes --requirement requirements.lock \
    && /opt/hgclr/bin/pip install --no-cache-dir --no-deps '.[onnx,serve]'

FROM ${PYTHON}
RUN useradd --create-home --uid 10001 hgclr
COPY --from=build /opt/hgclr /opt/hgclr
ENV PATH=/opt/hgclr/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    DO_NOT_TRACK=1 \
    HGCLR_HOST=0.0.0.0 \
    HGCLR_PORT=8000
USER 10001
WORKDIR /home/hgclr
VOLUME /model
EXPOSE 8000
# Ready means loaded and warm.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"HGCLR_PORT\"]}/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["hgclr", "serve"]
CMD ["/model"]
