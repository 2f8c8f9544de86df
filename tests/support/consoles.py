"""Consoles of stores for tests: of this process, and of another one whose status a test writes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from simulated_bay import SimulatedBay
from starlette.testclient import TestClient
from starlette.types import ASGIApp

import forebay.console
from forebay.console.guard import Access
from forebay.console.pages import console
from forebay.console.sources import StatusSource

TOKEN = "a-token-that-nobody-guesses"
MIB = 1 << 20


def status(**fields: Any) -> dict[str, Any]:
    """Return a status of a store with content in every part."""
    holders = {"dispatch_area": 12, "target_lists": 20, "pending_cache": 9, "head_queue_cache": 4, "index": 5}
    consumer = {"queue": "orders", "number": 2, "selector": "kind='rare'", "prefetch": 1000, "in_flight": 1000}
    consumer |= {"messages_per_second": 12.0, "watermark_bytes": MIB, "high_watermark_bytes": 2 * MIB, "is_slow": True}
    whole: dict[str, Any] = {
        "format": 1,
        "time": time.time(),
        "interval_seconds": 1.0,
        "pid": 4711,
        "resident_bytes": 93 * MIB,
        "memory": {
            "limit_bytes": 64 * MIB,
            "held_bytes": 50 * MIB,
            "held_bytes_max": 60 * MIB,
            "holders": {name: held * MIB for name, held in holders.items()},
            "recommended_limit_bytes": 128 * MIB,
            "curve": [[MIB << n, n / 10] for n in range(3, 11)],
        },
        "store": {"data_logs": 5, "journal_bytes": 100 * MIB, "pending_messages": 1_234_567},
        "queues": [queue_row()],
        "other_queues": 3,
        "topics": [{"name": "prices", "enqueued": 8, "enqueued_bytes": 800, "consumers": 2, "blocked_seconds": 0.5}],
        "subscriptions": [{"topic": "prices", "name": "audit", "depth": 6, "oldest_seconds": None}],
        "caches": {"pending_cache": {"messages": 1, "bytes": 1000, "share_bytes": MIB, "served": 9}},
        "paused_queues": {"count": 1, "names": ["orders"]},
        "consumers": [consumer],
        "data_logs": [{"first": n, "last": n, "bytes": 32, "live_bytes": 8 * n} for n in range(1, 5)],
        "health": {"ok": True, "problems": []},
        "durations": {name: durations_row() for name in ("sync", "take")},
        "explain": "0:orders has 1,234,567 messages.",
    }
    return whole | fields


def durations_row(**fields: Any) -> dict[str, Any]:
    """Return a row with two durations of up to 16 microseconds, and one of 200 seconds."""
    return {"count": 3, "total_seconds": 200.5, "max_seconds": 200.0, "buckets": [2] + [0] * 22 + [1]} | fields


def queue_row(name: str = "orders", **fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "depth": 1_234_567, "ready": 1_233_567, "in_flight": 1000, "bytes": 1200 * MIB}
    row |= {"consumers": 2, "oldest_seconds": 9.0, "in_per_second": 345.6, "out_per_second": 87.1, "enqueued": 77}
    return row | fields


def say(root: Path, **fields: Any) -> None:
    """Write a status, as the process that has the store open would do."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "status.json").write_text(json.dumps(status(**fields)), encoding="utf-8")


def of_status(root: Path, *, bodies: bool = False, **access: Any) -> TestClient:
    """Return a client of the console of the store in a directory."""
    return client(
        console(
            StatusSource(str(root)), Access(TOKEN, **({"open_reading": True, "open_messages": True} | access)), bodies
        )
    )


def console_of(store: SimulatedBay, **fields: Any) -> TestClient:
    """Return a client of a console for a store of this process. By default anybody may read."""
    return client(forebay.console.app(store.bay, token=TOKEN, **({"open_reading": True} | fields)))


def client(app: ASGIApp, **fields: Any) -> TestClient:
    """Return a client at http://localhost, which gets a page even if the console raised an error."""
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False, **fields)
