# The service in a container: docker build -t proctor . ; see compose.yaml for how it is run with PostgreSQL.
FROM python:3.13-slim AS build
WORKDIR /source
RUN python -m venv /opt/proctor
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# The MCP server offers the pages as resources.
COPY docs ./docs
RUN /opt/proctor/bin/pip install --no-cache-dir --disable-pip-version-check '.[all]' \
    && /opt/proctor/bin/python -m compileall -q /opt/proctor/lib

FROM python:3.13-slim
# Nothing in here needs to be root.
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin proctor \
    && install -d -o proctor -g proctor -m 0700 /data
COPY --from=build /opt/proctor /opt/proctor
ENV PATH=/opt/proctor/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PROCTOR_HOST=0.0.0.0 \
    PROCTOR_PORT=8700 \
    PROCTOR_HOME=/data
USER proctor
WORKDIR /data
VOLUME /data
EXPOSE 8700
# From outside the container the service can be reached, so it starts only when a key exists:
#   docker run --rm -v proctor-data:/data proctor keys create --kind organization --name admin
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["proctor"]
CMD ["serve"]
