"""forebay.aio: forebay in asyncio. Calls that wait in a thread are awaited here; all names are the same.

>>> import forebay.aio
>>> async with forebay.aio.open("data", memory_limit="64MiB") as bay:
...     orders = await bay.queue("orders")
...     message_id = await orders.send(b"1 kg tea", headers={"region": "eu"})
...     async with orders.subscribe(selector="region = 'eu'") as consumer:
...         for delivery in await consumer.take(10):
...             await delivery.ack()
"""

from forebay.dispatch.aio.consumer import AsyncConsumer as Consumer
from forebay.dispatch.aio.consumer import AsyncDelivery as Delivery
from forebay.dispatch.aio.forebay import AsyncForebay as Forebay
from forebay.dispatch.aio.forebay import open_in_loop as open
from forebay.dispatch.aio.host_properties import AsyncProperties as Properties
from forebay.dispatch.aio.queue import AsyncQueue as Queue
from forebay.dispatch.aio.queue import AsyncTemporaryQueue as TemporaryQueue
from forebay.dispatch.aio.queue import AsyncTemporaryTopic as TemporaryTopic
from forebay.dispatch.aio.queue import AsyncTopic as Topic
from forebay.dispatch.aio.queue import AsyncTopicSubscription as TopicSubscription
from forebay.dispatch.aio.reader import AsyncTopicReader as TopicReader
from forebay.dispatch.aio.transaction import AsyncTransaction as Transaction
from forebay.dispatch.aio.typed import AsyncTypedConsumer as TypedConsumer
from forebay.dispatch.aio.typed import AsyncTypedDelivery as TypedDelivery
from forebay.dispatch.aio.typed import AsyncTypedQueue as TypedQueue
from forebay.dispatch.aio.typed import AsyncTypedTopic as TypedTopic

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
