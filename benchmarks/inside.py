"""The one place where benchmarks reach into an open Forebay."""

from __future__ import annotations

from forebay.store.environment.locks import OwnedLock

from ..dispatch.core.memory.watermarks import Watermarks
from ..dispatch.engine.assembly.areas import AreaLayer
from ..dispatch.engine.engine import Engine
from ..dispatch.forebay import Forebay
from ..store.index.index import Index
from ..store.message_store import MessageStore


def engine_of(bay: Forebay) -> Engine:
    return bay._engine


def lock_of(bay: Forebay) -> OwnedLock:
    return engine_of(bay).monitor.lock


def index_of(bay: Forebay) -> Index:
    return engine_of(bay).layers.store_layer.directory.index


def store_of(bay: Forebay) -> MessageStore:
    return engine_of(bay).layers.store_layer.directory.message_store


def areas_of(bay: Forebay) -> AreaLayer:
    return engine_of(bay).layers.areas


def watermarks_of(bay: Forebay) -> Watermarks:
    return areas_of(bay).watermarks
