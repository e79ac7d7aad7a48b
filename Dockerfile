# A broker in a container. PostgreSQL is named by PG_HOST; the spool lies in the volume.
#
#   docker build -t queen .
#   docker run -p 6632:6632 -e PG_HOST=... -e QUEEN_SERVER_ID=broker-a -v queen-a:/var/lib/queen queen

FROM python:3.13-slim-bookworm AS build
WORKDIR /app
COPY requirements.txt .
# Wheels alone: nothing is compiled, so no compiler is needed, here or below.
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary=:all: \
      -r requirements.txt \
 && /opt/venv/bin/pip uninstall --yes --quiet pip
COPY manage.py ./
COPY queen_project queen_project
COPY brokers brokers
COPY mesh mesh
COPY spool spool
COPY templates templates
RUN /opt/venv/bin/python -m compileall -q /app

FROM python:3.13-slim-bookworm
# A number of its own, so that a volume keeps its owner from one image to the next.
RUN groupadd --gid 6632 queen \
 && useradd --uid 6632 --gid queen --home-dir /var/lib/queen --shell /usr/sbin/nologin queen \
 && install --directory --owner=queen --group=queen --mode=0700 /var/lib/queen
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PORT=6632 \
    QUEEN_DATA_DIR=/var/lib/queen
USER queen
# What was answered `buffered` lies here until PostgreSQL has it: it must outlive the container.
VOLUME /var/lib/queen
EXPOSE 6632 6633
# Alive, not ready: a broker without its database still takes pushes, and must not be restarted.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$PORT/livez', timeout=2)"
# SIGTERM is a clean stop (docs/rolling-restart.md); the process is PID 1 and gets it.
STOPSIGNAL SIGTERM
CMD ["python", "manage.py", "broker"]
