"""nginx: as the upstream server, in C and with canned answers, and as the reverse proxy that is the floor."""

from __future__ import annotations

import os
from pathlib import Path

from bench.payloads import ANSWERS, DOWNLOAD_MB, TYPES

COMMON = """\
{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000;
  keepalive_timeout 300s;
  sendfile on;
  tcp_nodelay on;
{inside}}}
"""
# A file is not for POST: nginx says 405, and the error page of that is the file.
SERVER = """\
  types {{ {types} application/octet-stream bin; }}
  open_file_cache max=100 inactive=300s;
  server {{
    listen 127.0.0.1:{plain} backlog=1024;
    listen 127.0.0.1:{tls} ssl backlog=1024;
    listen 127.0.0.1:{http2} ssl http2 backlog=1024;
    http2_max_concurrent_streams 1000;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    root {root};
    error_page 405 =200 $uri;
    location ~ \\.sse$ {{ ssi on; ssi_types text/event-stream; error_page 405 =200 $uri; }}
    location = /count {{ stub_status; }}
  }}
"""
REVERSE = """\
  upstream server {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
"""


def write_answers(root: Path) -> None:
    """Write what the server answers with."""
    root.mkdir(parents=True, exist_ok=True)
    for path, body in ANSWERS.items():
        (root / path.removeprefix("/")).write_bytes(body)
    download = root / "download.bin"
    if not download.exists():
        block = bytes(range(256)) * 3906 + bytes(64)  # a megabyte
        with download.open("wb") as file:
            for _ in range(DOWNLOAD_MB):
                file.write(block)


def server_config(folder: Path, ports: dict[str, int], certificate: Path, key: Path) -> Path:
    """Write the configuration of the upstream server, with ports `plain`, `tls` and `http2`."""
    write_answers(folder / "root")
    types = " ".join(f"{media_type} {kind};" for kind, media_type in TYPES.items())
    inside = SERVER.format(types=types, certificate=certificate, key=key, root=folder / "root", **ports)
    return _write(folder, inside)


def proxy_config(folder: Path, port: int, upstream: int) -> Path:
    """Write the configuration of a reverse proxy."""
    return _write(folder, REVERSE.format(port=port, upstream=upstream))


def _write(folder: Path, inside: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nginx.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""  # else it may not read our folder
    path.write_text(COMMON.format(user=user, folder=folder, inside=inside))
    return path


def command(program: str, config: Path) -> list[str]:
    """Return the command line."""
    return [program, "-p", str(config.parent), "-c", str(config), "-e", "stderr"]
