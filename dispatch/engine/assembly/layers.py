"""Layers: all parts of an open store below its background work, layer by layer, each made from those before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...admin.admin_layer import AdminLayer
from ..open_destinations import OpenDestinations
from .areas import AreaLayer
from .clients import ClientLayer
from .core import CoreLayer
from .foundation import FoundationLayer
from .redelivery import RedeliveryLayer
from .store_layer import StoreLayer

if TYPE_CHECKING:
    from ...planning.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All layers of one open store. No owner gets this object: the assembly passes each owner only what it uses."""

    foundation: FoundationLayer
    store_layer: StoreLayer
    recorder: Recorder | None
    areas: AreaLayer
    redelivery_layer: RedeliveryLayer
    core: CoreLayer
    clients: ClientLayer
    admin: AdminLayer
    open_destinations: OpenDestinations
