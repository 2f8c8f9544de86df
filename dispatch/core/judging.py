"""What a selector may ask a message for."""

from __future__ import annotations

from collections.abc import Set

from ...store.format.properties import decode_properties, group_of, header_values, message_id_of
from ...store.message import HeaderValue
from ...store.stored_message import StoredMessage
from .contracts import Source


def values_of(
    source: Source, message: StoredMessage, fields: Set[str], names: frozenset[str] | None = None
) -> dict[str, HeaderValue]:
    """Return what a selector may ask a message for: these of its own fields, and its headers of these names, or all.

    RecordDamaged where that is no text.
    """
    properties = message[1]
    values: dict[str, HeaderValue] = {}
    if properties:
        values = decode_properties(properties)[0] if names is None else header_values(properties, names)
    if fields:
        own_id = message_id_of(properties) if "JMSMessageID" in fields else None
        values |= {
            "JMSPriority": source.priority,
            "JMSMessageID": own_id if own_id is not None else f"{source.id_prefix}{message[0]}",
            "JMSTimestamp": message[3],
            "JMSDeliveryMode": source.delivery_mode,
            "JMSXGroupID": group_of(properties) if "JMSXGroupID" in fields else None,
        }
    return values
