# The service in a container: docker build -t proctor . ; see compose.yaml for how it is run with PostgreSQL.
#
# Everything that is installed is as uv.lock has it. The base is fixed to a release of Python and of Debian, and gets their patches with every
# build; for the very same one again: --build-arg BASE=python@sha256:...
ARG BASE=python:3.13-slim-bookworm
FROM ${BASE} AS build
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.7
ENV UV_PROJECT_ENVIRONMENT=/opt/proctor \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /source
COPY pyproject.toml uv.lock hatch_build.py native_build.py README.md LICENSE ./
RUN uv sync --frozen --no-dev --extra all --no-install-project
COPY src ./src
# The MCP server offers the pages as resources.
COPY docs ./docs
RUN uv sync --frozen --no-dev --extra all --no-editable

FROM ${BASE}
# Nothing in here needs to be root.
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin proctor \
    && install -d -o proctor -g proctor -m 0700 /data
COPY --from=build /opt/proctor /opt/proctor
ENV PATH=/opt/proctor/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PROCTOR_HOST=0.0.0.0 \
    PROCTOR_PORT=8700 \
    PROCTOR_HOME=/data
USER proctor
WORKDIR /data
VOLUME /data
EXPOSE 8700
# From outside the container the service can be reached, so it starts only when an organization key exists. Make the first one so:
#   docker run --rm -v proctor-data:/data proctor keys create --kind organization --name admin
#   docker run -d -v proctor-data:/data -p 127.0.0.1:8700:8700 proctor
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"PROCTOR_PORT\"]}/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["proctor"]
CMD ["serve"]
