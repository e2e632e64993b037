"""``make demo-cluster``: two servers and a worker behind a balancer, here.

Two web processes, one ``run_turns``, the PostgreSQL and the Redis of this
machine, and an nginx that hands every connection to the next server. Nothing
is sticky: a page, its socket and its reload are usually served by different
processes, and a third one writes the reply. Kill one of them: it is started
again, and the reply goes on.

``PORT`` is the balancer's (any free one by default), ``SERVER`` is ``uvicorn``
or ``daphne``, ``REDIS_URL`` and the ``PG*`` variables say where the services
are. One Ctrl-C ends all of it. ``BUILD_DIR`` holds nginx's configuration and
logs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD_DIR", ROOT / "build" / "cluster"))
HOST = "127.0.0.1"
WITHIN = 60.0
"""Seconds in which all of it must be up."""
GRACE = 10.0
"""Seconds that a process has to end before it is killed."""
AGAIN = 1.0
"""Seconds between two starts of a process that ends."""

NGINX = """\
# Made by demo_project/cluster.py.
daemon off;
master_process {master};
pid {build}/nginx.pid;
error_log {build}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {build}/body;
    proxy_temp_path {build}/proxy;
    fastcgi_temp_path {build}/fastcgi;
    uwsgi_temp_path {build}/uwsgi;
    scgi_temp_path {build}/scgi;
    upstream web {{
        # Round robin, and on to the next one where a server is being replaced.
{servers}
    }}
    map $http_upgrade $connection_upgrade {{
        default upgrade;
        '' '';
    }}
    server {{
        listen {host}:{port};
        location / {{
            proxy_pass http://web;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_next_upstream error timeout;
            # An open socket or event stream may be silent for long.
            proxy_read_timeout 3600s;
        }}
    }}
}}
"""


def main() -> int:
    problem = missing()
    if problem:
        print(problem)
        return 1
    BUILD.mkdir(parents=True, exist_ok=True)
    ports = free_ports(3)
    port = int(os.environ.get("PORT") or ports[0])
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
        "DEMO_DATABASE": "postgresql",
        "REDIS_URL": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
        "DEMO_RUNNER": "worker",
        "PYTHONUNBUFFERED": "1",
    }
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Noted and no more: a process that is just being started is one to end.
        signal.signal(number, lambda *_: told.set())
    running: list[subprocess.Popen[bytes]] = []
    try:
        problem = prepare(env)
        if problem:
            print(problem)
            return 1
        manage = [sys.executable, str(ROOT / "manage.py")]
        commands = [server(number) for number in ports[1:]]
        commands.append([*manage, "run_turns", "--grace", "5"])
        commands.append(balancer(port, ports[1:]))
        for command in commands:
            if not told.is_set():
                running.append(start(command, env))
        problem = wait_until_up(port, running, told)
        if problem:
            print(problem)
            return 1
        if not told.is_set():
            print()
            print(f"  The chat is at http://{HOST}:{port}/ (Ctrl-C ends all of it)")
            print(f"  servers: {', '.join(str(p.pid) for p in running[:2])}")
            print(f"  worker: {running[2].pid}, balancer: {running[3].pid}")
            print(flush=True)
        while not told.wait(AGAIN):
            for at, process in enumerate(running):
                if process.poll() is not None and not told.is_set():
                    running[at] = start(commands[at], env)
                    print(f"{process.pid} has ended; {running[at].pid} takes its place")
            sys.stdout.flush()
        return 0
    finally:
        stop(running)


def missing() -> str | None:
    """What this machine lacks, and how to get it."""
    if program("nginx") is None:
        return "make demo-cluster needs nginx (Debian: apt-get install nginx-light)."
    if (wanted := os.environ.get("PORT")) and not is_free(int(wanted)):
        return f"Port {wanted} of {HOST} is taken: make demo-cluster PORT=8001"
    return None


def is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def program(name: str) -> str | None:
    path = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"
    return shutil.which(name, path=path)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; held together, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def prepare(env: dict[str, str]) -> str | None:
    """Make the database and its tables; what a service lacks for it."""
    import psycopg
    import redis

    try:
        create_database(env)
        with redis.Redis.from_url(env["REDIS_URL"]) as client:
            client.ping()
    except psycopg.Error as error:
        return (
            f"make demo-cluster needs PostgreSQL: {error}\n"
            "PGHOST, PGPORT, PGUSER and PGPASSWORD say where it is and who asks."
        )
    except redis.RedisError as error:
        return f"make demo-cluster needs Redis: {error}\nREDIS_URL says where it is."
    migrate = [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"]
    if subprocess.run(migrate, env=env, cwd=ROOT, check=False).returncode:
        return "The tables could not be made."
    return None


def create_database(env: dict[str, str]) -> None:
    """Make the demo's database if there is none."""
    import psycopg
    from psycopg import sql

    name = env.get("PGDATABASE", "django_streams_demo")
    with psycopg.connect(
        host=env.get("PGHOST", HOST),
        port=int(env.get("PGPORT", "5432")),
        user=env.get("PGUSER", "postgres"),
        password=env.get("PGPASSWORD") or None,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        known = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [name]
        ).fetchone()
        if known is None:
            connection.execute(
                sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
            )


def server(port: int) -> list[str]:
    """The command line of one web process."""
    app = "demo_project.asgi:application"
    if os.environ.get("SERVER", "uvicorn") == "daphne":
        options = ["-b", HOST, "-p", str(port), "-v", "0"]
        return [sys.executable, "-m", "daphne", *options, app]
    options = ["--host", HOST, "--port", str(port), "--lifespan", "off"]
    quiet = ["--log-level", "warning", "--ws-ping-interval", "20"]
    return [sys.executable, "-m", "uvicorn", *options, *quiet, app]


def balancer(port: int, ports: list[int]) -> list[str]:
    """Write nginx's configuration; its command line."""
    servers = "\n".join(f"        server {HOST}:{one} max_fails=0;" for one in ports)
    # As root it would change to a user who may not read the build folder.
    master = "off" if os.geteuid() == 0 else "on"
    config = BUILD / "nginx.conf"
    config.write_text(
        NGINX.format(build=BUILD, servers=servers, host=HOST, port=port, master=master),
        encoding="utf-8",
    )
    nginx = program("nginx")
    assert nginx is not None
    return [nginx, "-p", str(BUILD), "-c", str(config), "-e", str(BUILD / "error.log")]


def start(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C reaches this process alone, which then ends
    # the others in order.
    return subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)


def wait_until_up(
    port: int, running: list[subprocess.Popen[bytes]], told: threading.Event
) -> str | None:
    """Return when a page comes, or when it is to end; why none comes."""
    deadline = time.monotonic() + WITHIN
    while not told.is_set():
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/", timeout=5):
                return None
        except OSError as error:
            if any(process.poll() is not None for process in running):
                return "One of the processes did not start."
            if time.monotonic() > deadline:
                return f"No page came within {WITHIN:g} s: {error}"
            told.wait(0.1)
    return None


def stop(running: list[subprocess.Popen[bytes]]) -> None:
    """End all, the balancer first; kill what does not end."""
    for process in reversed(running):
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    deadline = time.monotonic() + GRACE
    for process in running:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
