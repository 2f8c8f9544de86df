"""Explains which subscriptions a topic keeps its messages for, as data and in one sentence."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..engine.explained_store import ExplainedStore
from ..topics.state.subscription_state import SubscriptionState
from ..topics.state.topic_state import TopicState
from .blocked import explain_blocked
from .cause import Cause, Explanation
from .disk import HOLDERS_SAID
from .texts import plural, size_text

SUBSCRIPTION: Final = "subscription"


class _Lag(NamedTuple):
    """How much a subscription has not acknowledged."""

    subscription: SubscriptionState
    messages: int
    bytes: int
    in_flight: int


def explain_topic(store: ExplainedStore, topic: TopicState) -> Explanation:
    """Explain which subscriptions a topic keeps its messages for, starting with the one that lags most.

    Requires: the lock is not held. O(subscriptions + messages in flight).
    """
    with store.monitor.lock, store.monitor.all_or_broken:
        depth, size_bytes = topic.depth, topic.depth_bytes
        # As dict keys, in order, because a durable subscription may also be online.
        everyone = dict.fromkeys([*topic.durable_subscriptions(), *topic.online])
        lags = [
            _Lag(each, each.depth, each.depth_bytes, sum(len(lane.deliveries) for lane in each.all_lanes()))
            for each in everyone
        ]
        online = set(topic.online)
    blocked = explain_blocked(store, topic)
    lagging = sorted((lag for lag in lags if lag.messages), key=lambda lag: -lag.messages)
    causes = (*map(_subscription_cause, lagging), *(cause for cause, _ in blocked))
    name, clauses = topic.qualified_name, [clause for _, clause in blocked]
    if not everyone:
        sentence = f"{name} has no subscription: what is sent to it is for nobody, and is not stored"
        return Explanation(f"{'; '.join([sentence, *clauses])}.", causes)
    count = f"{len(everyone):,} subscription{plural(len(everyone))}"
    if not lagging:
        has = "has" if len(everyone) == 1 else "have"
        sentence = f"{name} has no messages: its {count} {has} acknowledged everything"
        return Explanation(f"{'; '.join([sentence, *clauses])}.", causes)
    said = [_lag_text(lag, is_online=lag.subscription in online) for lag in lagging[:HOLDERS_SAID]]
    more = len(lagging) - len(said)
    if more:
        said.append(f"{more:,} more subscription{plural(more)} {'lags' if more == 1 else 'lag'} less")
    head = f"{name} has {depth:,} message{plural(depth)} of {size_text(size_bytes)} for its {count}"
    return Explanation(f"{head}: {'; '.join([*said, *clauses])}.", causes)


def _subscription_cause(lag: _Lag) -> Cause:
    those = "that message" if lag.messages == 1 else "those messages"
    subscription = lag.subscription
    end = "the close of its consumer"
    if subscription.is_durable:
        end = f"topic({subscription.name!r}).unsubscribe({subscription.subscriber.facts.name!r})"
    frees = f"acknowledging {those}, or {end}"
    return Cause(SUBSCRIPTION, subscription.qualified_name, lag.messages, lag.bytes, None, frees)


def _lag_text(lag: _Lag, *, is_online: bool) -> str:
    subscription = lag.subscription
    name = subscription.qualified_name if subscription.is_durable else "a subscription without a name"
    state = f"and has {lag.in_flight:,} of them in flight" if is_online else "and has no consumer"
    return f"{name} lacks the acks of {lag.messages:,} message{plural(lag.messages)}, {state}"
