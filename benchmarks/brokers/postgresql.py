"""PostgreSQL: a table as a queue, with psycopg.

A take is a DELETE over SELECT FOR UPDATE SKIP LOCKED, and an ack is a COMMIT.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .broker import BrokerFailed, ServedBroker
from .server import HOST, Server, free_port, unprivileged

_USER: Final = "postgres"
_VERSIONS: Final = Path("/usr/lib/postgresql")
_PUT: Final = "INSERT INTO bench (body) VALUES (%b)"
_TAKE: Final = (
    "DELETE FROM bench WHERE id IN (SELECT id FROM bench ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s) RETURNING body"
)


class PostgreSQL(ServedBroker):
    """The server. synchronous_commit: off: a commit returns before its log is on disk, up to 0.6 s later."""

    debian = "postgresql"
    client, module = "psycopg[binary]", "psycopg"

    def __init__(self, synchronous_commit: bool) -> None:
        super().__init__()
        self._synchronous_commit = synchronous_commit

    @classmethod
    def program(cls) -> Path | None:
        newest = max(_VERSIONS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]), default=None)
        found = newest or shutil.which("initdb")
        return Path(found).with_name("postgres") if found else None

    async def start(self, place: Path) -> str:
        import psycopg

        program, port, user = self.program(), free_port(), unprivileged(_USER)
        assert program is not None
        if user is not None:
            shutil.chown(place, user)
        made = subprocess.run(
            [program.with_name("initdb"), "--no-sync", "--auth=trust", f"--username={_USER}", place / "data"],
            capture_output=True,
            text=True,
            cwd=place,
            user=user,
            env=os.environ | {"LC_ALL": "C"},
        )
        if made.returncode:
            raise BrokerFailed(f"initdb ended with exit code {made.returncode}: {made.stderr.strip()}")
        settings = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "on",
            "synchronous_commit": "on" if self._synchronous_commit else "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [program, "-D", place / "data", *options]
        # SIGKILL would leave shared memory behind.
        server = self._run(Server(command, place, user=user, farewell=signal.SIGQUIT))
        await server.answers(port, said="ready to accept connections")
        self._connection = psycopg.connect(host=HOST, port=port, user=_USER, dbname=_USER)
        self._cursor = self._connection.cursor(binary=True)
        self._cursor.execute("CREATE TABLE bench (id bigserial PRIMARY KEY, body bytea NOT NULL)")
        self._connection.commit()
        number = self._connection.info.server_version
        return self._versions(f"PostgreSQL {number // 10000}.{number % 10000}")

    async def put_one(self, body: bytes) -> None:
        self._cursor.execute(_PUT, (body,))
        self._connection.commit()

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        self._cursor.executemany(_PUT, [(body,) for body in bodies])
        self._connection.commit()

    async def take_ack(self, messages: int) -> int:
        rows = self._cursor.execute(_TAKE, (messages,)).fetchall()
        if len(rows) != messages:
            raise BrokerFailed(f"PostgreSQL has {len(rows)} rows of {messages}")
        self._connection.commit()
        return sum(len(body) for (body,) in rows)
