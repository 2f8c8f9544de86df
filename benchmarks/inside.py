"""The one place where benchmarks reach into an open Forebay."""

from __future__ import annotations

from forebay.store.environment.locks import OwnedLock

from ..dispatch.core.memory.watermarks import Watermarks
from ..dispatch.engine.assembly.areas import AreaLayer
from ..dispatch.forebay import Forebay
from ..store.index.index import Index
from ..store.message_store import MessageStore


def lock_of(bay: Forebay) -> OwnedLock:
    return bay._engine.monitor.lock


def index_of(bay: Forebay) -> Index:
    return bay._engine.layers.store_layer.directory.index


def store_of(bay: Forebay) -> MessageStore:
    return bay._engine.layers.store_layer.directory.message_store


def areas_of(bay: Forebay) -> AreaLayer:
    return bay._engine.layers.areas


def watermarks_of(bay: Forebay) -> Watermarks:
    return areas_of(bay).watermarks
