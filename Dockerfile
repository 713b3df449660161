# Interlock as a sidecar: docs/deployment.md says how it is used, docker-compose.yml shows it.
# The base is pinned by tag; pin it by digest too where you build for production. Its Python is built with PGO and LTO
# (--enable-optimizations --with-lto), which takes a quarter off the processor time of a call: keep to one that is.
ARG BASE=python:3.13.9-slim-bookworm

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The environment has no pip of its own: nothing is installed into it once it is built.
RUN python -m venv --without-pip /opt/interlock
# Wheels alone, each with its hash: nothing is compiled, and no package's own code runs while it is installed.
COPY requirements.lock ./
RUN pip --python /opt/interlock install --no-deps --require-hashes --only-binary=:all: -r requirements.lock
# The product changes more often than what it is built on.
COPY pyproject.toml README.md LICENSE ./
COPY mcp_interlock ./mcp_interlock
COPY proxy ./proxy
COPY addons ./addons
COPY policies ./policies
COPY sql ./sql
COPY man ./man
RUN /opt/interlock/bin/python -m hatchling build -t wheel -d /dist \
    && pip --python /opt/interlock install --no-deps --no-index /dist/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="Interlock" \
      org.opencontainers.image.description="Sees, stops and records what an AI agent's MCP tools do" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.documentation="docs/deployment.md"
# strace watches stdio servers; nft and ip confine agents that share the network. Security fixes matter more than
# that a rebuild has the same minor version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates iproute2 nftables strace \
    && rm -rf /var/lib/apt/lists/*
# State and the folder that is shared with the agent are the proxy's own; a fresh volume mounted there takes this on.
RUN groupadd --system --gid 10001 interlock \
    && useradd --system --uid 10001 --gid interlock --no-create-home --home-dir /var/lib/interlock interlock \
    && install -d -o interlock -g interlock -m 0700 /var/lib/interlock \
    && install -d -o interlock -g interlock -m 0755 /share
COPY --from=build /opt/interlock /opt/interlock
# Beside the profile. A folder of your own in its place may hold a whole policy: then set INTERLOCK_PROFILE to nothing.
COPY deploy/sidecar.yaml /etc/interlock/policies/
COPY --chmod=0755 deploy/entrypoint /usr/local/bin/interlock-entrypoint
ENV PATH=/opt/interlock/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/interlock \
    INTERLOCK_STATE_DIR=/var/lib/interlock \
    INTERLOCK_POLICY=/etc/interlock/policies \
    INTERLOCK_PROFILE=balanced \
    INTERLOCK_LISTEN=0.0.0.0:8080 \
    INTERLOCK_LOG_FORMAT=json
# An image whose policy fails its own tests is not an image.
RUN interlock policy test /etc/interlock/policies && interlock policy test
USER 10001:10001
# Root without capabilities, which the transparent way starts as, cannot go where only the proxy may.
WORKDIR /
VOLUME ["/var/lib/interlock", "/share"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/readyz', timeout=4)"]
ENTRYPOINT ["interlock-entrypoint"]
CMD ["up"]
