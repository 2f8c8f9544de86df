"""forebay.aio: forebay in asyncio. Calls that wait in a thread are awaited here; all names are the same.

>>> import forebay.aio
>>> async with forebay.aio.open("data", memory_limit="64MiB") as bay:
...     orders = await bay.queue("orders")
...     message_id = await orders.send(b"1 kg tea", headers={"region": "eu"})
...     async with orders.subscribe(selector="region = 'eu'") as consumer:
...         for delivery in await consumer.take(10):
...             await delivery.ack()
"""

from forebay.dispatch.aio.async_consumer import AsyncConsumer as Consumer
from forebay.dispatch.aio.async_consumer import AsyncDelivery as Delivery
from forebay.dispatch.aio.async_forebay import AsyncForebay as Forebay
from forebay.dispatch.aio.async_forebay import open_in_loop as open
from forebay.dispatch.aio.async_properties import AsyncProperties as Properties
from forebay.dispatch.aio.async_queue import AsyncQueue as Queue
from forebay.dispatch.aio.async_queue import AsyncTemporaryQueue as TemporaryQueue
from forebay.dispatch.aio.async_queue import AsyncTemporaryTopic as TemporaryTopic
from forebay.dispatch.aio.async_queue import AsyncTopic as Topic
from forebay.dispatch.aio.async_queue import AsyncTopicSubscription as TopicSubscription
from forebay.dispatch.aio.async_reader import AsyncTopicReader as TopicReader
from forebay.dispatch.aio.async_transaction import AsyncTransaction as Transaction
from forebay.dispatch.aio.async_typed import AsyncTypedConsumer as TypedConsumer
from forebay.dispatch.aio.async_typed import AsyncTypedDelivery as TypedDelivery
from forebay.dispatch.aio.async_typed import AsyncTypedQueue as TypedQueue
from forebay.dispatch.aio.async_typed import AsyncTypedTopic as TypedTopic

__all__ = [
    "Consumer",
    "Delivery",
    "Forebay",
    "Properties",
    "Queue",
    "TemporaryQueue",
    "TemporaryTopic",
    "Topic",
    "TopicReader",
    "TopicSubscription",
    "Transaction",
    "TypedConsumer",
    "TypedDelivery",
    "TypedQueue",
    "TypedTopic",
    "open",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
