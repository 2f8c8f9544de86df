"""Settings from an activemq.xml: what each property becomes, and that none is passed over in silence."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import pytest

import forebay
from forebay import DestinationPolicy, Settings, SettingsError, SettingsWarning
from forebay.__main__ import main
from forebay.cache.process.process_memory import share_of_memory_bytes
from forebay.dispatch.config.activemq_importer import ImportFinding, read_activemq
from forebay.dispatch.config.activemq_mapping import (
    DIRECTORY,
    POLICY_PROPERTIES,
    PROPERTIES,
    UNKNOWN_ELEMENTS,
    rows,
)
from forebay.dispatch.config.policy import policy_for

LIMIT_STRATEGY = "constantPendingMessageLimitStrategy"
SAMPLES = Path(__file__).parent / "activemq"

FIELDS = {entry.name for entry in dataclasses.fields(Settings) if entry.init}
POLICY_FIELDS = {entry.name for entry in dataclasses.fields(DestinationPolicy)}

VALUES = {
    "broker_name": ("east-1", "east-1"),
    "sync": ("true", "always"),
    "sync_interval_seconds": ("1500", 1.5),
    "max_file_length": ("16mb", "16MiB"),
    "checkpoint_interval_seconds": ("2000", 2.0),
    "cleanup_interval_seconds": ("90000", 90.0),
    "index_page_size": ("8kb", "8KiB"),
    "index_cache_size": ("1024", "4MiB"),
    "memory_limit": ("64 mb", "64MiB"),
    "prefetch": ("10", 10),
    "expired_to_dead_letter": ("true", True),
    "use_vectored_io": ("false", False),
    "verify_on_open": ("true", True),
    "persistent_index": ("false", False),
    "index_transaction_adds": ("8kb", 8192),
    "on_missing_data_log": ("true", "report"),
    "store_limit": ("64 mb", "64MiB"),
    "temp_limit": ("64 mb", "64MiB"),
    "archive_data_logs": ("true", True),
    "archive_directory": ("/var/archive", "/var/archive"),
    "when_full": ("true", "fail"),
    "subscriber_max_messages": ("100", 100),
    "block_timeout_seconds": ("2500", 2.5),
    "expiry_sweep_seconds": ("60000", 60.0),
    "max_attempts": ("4", 5),
    "redelivery_delay_seconds": ("2500", 2.5),
    "redelivery_backoff": ("3", 3.0),
    "dead_letter_queue": ("dead.", "dead."),
    "duplicate_window": ("500", 500),
    "eviction": ("", "oldest"),
    "eviction_key": ("STOCK", "STOCK"),
    "memory_share": ("64 mb", "64MiB"),
}
"""For each field that there is: a property's text, and what the field should be."""

EVICTIONS = {
    "oldestMessageEvictionStrategy": "oldest",
    "oldestMessageWithLowestPriorityEvictionStrategy": "lowest_priority",
    "uniquePropertyMessageEvictionStrategy": "latest_per_key",
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "activemq.xml"
    path.write_text(text, encoding="utf-8")
    return path


def broker(*inside: str, attributes: str = "") -> str:
    return f'<broker xmlns="http://activemq.apache.org/schema/core" {attributes}>\n' + "\n".join(inside) + "</broker>"


def findings_of(path: Path, prefix: str) -> list[ImportFinding]:
    return [finding for finding in read_activemq(path, Settings).findings if finding.property.startswith(prefix)]


def quiet(path: Path) -> Settings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingsWarning)
        return Settings.from_activemq(path)


# ------------------------------------------------------------------ the samples


def test_the_default_configuration_gives_its_limits_and_the_default_settings_otherwise() -> None:
    assert quiet(SAMPLES / "default.xml") == Settings(
        memory_limit="70%",
        store_limit="100GiB",
        temp_limit="50GiB",
        policies={">": DestinationPolicy(subscriber_max_messages=1000)},
    )


def elements_of(path: Path) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """Yield the line of each element, the names of the elements around it and its own, and its attributes."""
    parser, names, found = expat.ParserCreate(), list[str](), list[tuple[int, list[str], dict[str, str]]]()

    def begin(name: str, attributes: dict[str, str]) -> None:
        names.append(name)
        found.append((parser.CurrentLineNumber, list(names), attributes))

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: names.pop()
    parser.Parse(path.read_bytes(), True)
    yield from found


def test_each_line_of_the_default_configuration_has_an_effect_or_a_reason() -> None:
    path = SAMPLES / "default.xml"
    findings = read_activemq(path, Settings).findings
    skipped: list[str] = []
    for line, names, attributes in elements_of(path):
        here = [finding for finding in findings if finding.line == line]
        if any(finding.property == f"<{names[-1]}>" for finding in here):
            skipped = names
        if names[: len(skipped)] == skipped != []:
            continue  # named with all that is in it
        skipped = []
        for key in attributes:
            if key == "topic":
                assert f"{LIMIT_STRATEGY}[topic >] limit" in [each.property for each in findings]
            elif not key.startswith(("xmlns", "xsi:")):
                assert [finding.property for finding in here] != [] and any(
                    finding.property.endswith(f" {key}") for finding in here
                ), f"{names[-1]} {key}"
    named = {finding.property: finding for finding in findings}
    honoured = {name: finding.becomes for name, finding in named.items() if finding.becomes}
    assert honoured == {
        "broker brokerName": 'broker_name="localhost"',
        f"{LIMIT_STRATEGY}[topic >] limit": 'policies[">"].subscriber_max_messages=1000 (and an eighth more)',
        "memoryUsage percentOfJvmHeap": 'memory_limit="70%"',
        "storeUsage limit": 'store_limit="100GiB"',
        "tempUsage limit": 'temp_limit="50GiB"',
    }
    assert [name for name, finding in named.items() if finding.warning] == ["memoryUsage percentOfJvmHeap"]
    assert {name: finding.problem for name, finding in named.items() if finding.problem} == {
        "<bean>": "a Spring bean, which is not made",
        "broker dataDirectory": DIRECTORY,
        "<managementContext>": "there is no JMX: Forebay.statistics tells",
        "kahaDB directory": DIRECTORY,
        "<transportConnectors>": "forebay is embedded and has no network",
        "<shutdownHooks>": "the host closes the store",
        "<import>": "another file, which is not read",
    }


def test_a_share_of_the_java_heap_becomes_one_of_the_ram_and_the_warning_says_so() -> None:
    with pytest.warns(SettingsWarning) as caught:
        settings = Settings.from_activemq(SAMPLES / "default.xml")
    assert settings.memory_limit_bytes == share_of_memory_bytes(0.7)
    [text] = [str(warning.message) for warning in caught if "percentOfJvmHeap" in str(warning.message)]
    assert 'percentOfJvmHeap="70" becomes memory_limit="70%": of the RAM of the machine or container here' in text


def test_an_amq_store_gives_what_it_says() -> None:
    settings = quiet(SAMPLES / "amq-store.xml")
    assert settings.broker_name == "warehouse"
    assert settings.sync == "always"
    assert settings.max_file_length_bytes == 16 * 2**20
    assert settings.index_page_size_bytes == 16 * 2**10
    assert settings.memory_limit_bytes == 64 * 2**20
    assert (settings.checkpoint_interval_seconds, settings.cleanup_interval_seconds) == (10.0, 60.0)


def test_a_tuned_kahadb_gives_what_it_says() -> None:
    settings = quiet(SAMPLES / "tuned-kahadb.xml")
    assert settings.broker_name == "orders-1"
    assert (settings.sync, settings.sync_interval_seconds) == ("interval", 0.5)
    assert settings.max_file_length_bytes == 64 * 2**20
    assert settings.index_cache_size_bytes == 2000 * 4096
    assert settings.memory_limit_bytes == 256 * 2**20
    prefetch = {pattern: policy.prefetch for pattern, policy in settings.policies.items()}
    assert prefetch == {">": 100, "orders.>": 10, "orders.urgent": 1, "orders.late": 1, "prices.>": 500}
    assert {policy.block_timeout_seconds for policy in settings.policies.values()} == {3.0}  # of systemUsage


@pytest.mark.parametrize("name", ["default", "amq-store", "tuned-kahadb"])
def test_each_attribute_and_each_foreign_element_of_a_sample_is_found_and_warned_about_once(name: str) -> None:
    path = SAMPLES / f"{name}.xml"
    findings = read_activemq(path, Settings).findings
    assert all(bool(finding.becomes) != bool(finding.problem) for finding in findings)
    text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for element in [*PROPERTIES, *POLICY_PROPERTIES]:
        for attributes in re.findall(rf"<(?:amq:)?{element}\s([^>]*)>", text):
            for key in set(re.findall(r"(\w+)=", attributes)) - {"queue", "topic", "xmlns", "xsi"}:
                if name == "tuned-kahadb" and 'journalMaxFileLength="8mb"' in attributes:
                    continue  # in a store that is passed over as one
                named = [finding for finding in findings if finding.property.split(" ")[-1].startswith(key[:12])]
                assert named, f"{element} {key}"
    for element in re.findall(r"<(\w+)", text):
        assert (
            element not in UNKNOWN_ELEMENTS
            or any(finding.property == f"<{element}>" for finding in findings)
            or (element in ("bean", "managementContext"))
        )
    with pytest.warns(SettingsWarning) as caught:
        Settings.from_activemq(path)
    assert [str(warning.message) for warning in caught] == [
        f'{path}, line {line}: {key}="{value}" '
        + (f"is not honoured: {problem}" if problem else f"becomes {becomes}: {warning}")
        for line, key, value, becomes, problem, warning in findings
        if problem or warning
    ]
    assert {warning.filename for warning in caught} == {__file__}


# ------------------------------------------------------------------ the table


@pytest.mark.parametrize(
    ("element", "key", "field", "is_policy"),
    [(element, row.property, row.field, is_policy) for element, row, is_policy in rows() if row.field],
)
def test_a_property_becomes_its_field_or_is_named(
    element: str, key: str, field: str, is_policy: bool, tmp_path: Path
) -> None:
    is_there = field in (POLICY_FIELDS if is_policy else FIELDS)
    text, value = VALUES[field] if is_there else ("true", None)
    if (element, key) == ("amqPersistenceAdapter", "indexCacheSize"):
        text = "4mb"
    if key == "journalDiskSyncStrategy":
        text = "ALWAYS"
    if is_there and key == "percentLimit":
        text, value = "70", "70%"
    if key == "percentOfJvmHeap":
        text, value = "50", "50%"
    if key in ("queuePrefix", "topicPrefix"):
        value = f"{text}{{name}}"
    if key == "":
        value = EVICTIONS[element]
    attribute = f"{key}={quoteattr(text)}" if key else ""
    if key == "backOffMultiplier":
        attribute += ' useExponentialBackOff="true"'
    inside = f"<{element} {attribute}/>"
    if key == "topicPrefix":
        inside = f'<policyEntry topic=">">{inside}</policyEntry>'
    path = written(tmp_path, broker(attributes=attribute) if element == "broker" else broker(inside))
    name = f" {key}" if key else element
    [finding] = [finding for finding in read_activemq(path, Settings).findings if finding.property.endswith(name)]
    assert finding.value == text
    settings = quiet(path)
    if not is_there:
        assert finding.becomes == "" and finding.problem
        assert settings == quiet(written(tmp_path, broker(f"<{element}/>")))
    elif is_policy:
        assert finding.problem == ""
        assert getattr(settings.policies.get(">", DestinationPolicy()), field) == value
    else:
        assert finding.problem == ""
        assert getattr(settings, field) == value


def test_a_property_without_a_field_says_why() -> None:
    for element, row, _ in rows():
        assert row.field or row.note or row.convert is not str, f"{element} {row.property}"


@pytest.mark.parametrize(
    ("strategy", "queue"),
    [
        ("<sharedDeadLetterStrategy/>", "ActiveMQ.DLQ"),
        ("<individualDeadLetterStrategy/>", "ActiveMQ.DLQ.Queue.{name}"),
        ('<individualDeadLetterStrategy queuePrefix="dead."/>', "dead.{name}"),
        ('<sharedDeadLetterStrategy deadLetterQueue="queue://grave"/>', "grave"),
        (
            '<sharedDeadLetterStrategy><deadLetterQueue><queue physicalName="grave"/></deadLetterQueue>'
            "</sharedDeadLetterStrategy>",
            "grave",
        ),
    ],
)
def test_strategy_of_dead_letters_names_their_queue_also_by_saying_nothing(
    strategy: str, queue: str, tmp_path: Path
) -> None:
    entry = f'<policyEntry queue="orders.>"><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>'
    path = written(tmp_path, broker(f"<destinationPolicy>{entry}</destinationPolicy>"))
    assert all(finding.becomes for finding in read_activemq(path, Settings).findings)
    assert quiet(path).policies["orders.>"].dead_letter_queue == queue


def test_dead_letters_that_go_to_no_queue_are_named(tmp_path: Path) -> None:
    for text in ("#bean", "topic://grave"):
        path = written(tmp_path, broker(f'<sharedDeadLetterStrategy deadLetterQueue="{text}"/>'))
        assert "by its name" in findings_of(path, "sharedDeadLetterStrategy deadLetterQueue")[0].problem


def test_redelivery_of_the_plugin_becomes_a_policy(tmp_path: Path) -> None:
    said = 'maximumRedeliveries="4" initialRedeliveryDelay="5000" backOffMultiplier="2"'
    for more, backoff in (("", 1.0), (' useExponentialBackOff="true"', 2.0)):
        path = written(tmp_path, broker(f'<redeliveryPolicy queue="orders" {said}{more}/>'))
        policy = quiet(path).policies["orders"]
        assert (policy.max_attempts, policy.redelivery_delay_seconds, policy.redelivery_backoff) == (5, 5.0, backoff)
    for text, attempts in (("0", 1), ("-1", None)):
        path = written(tmp_path, broker(f'<redeliveryPolicy queue="orders" maximumRedeliveries="{text}"/>'))
        assert quiet(path).policies["orders"].max_attempts == attempts


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("67108864", 2**26), ("65536b", 2**16), ("64k", 2**16), ("64 kb", 2**16), ("1M", 2**20), ("1 gb", 2**30)],
)
def test_a_size_is_written_as_activemq_writes_it(text: str, size_bytes: int, tmp_path: Path) -> None:
    path = written(tmp_path, broker(f'<kahaDB journalMaxFileLength="{text}"/>'))
    assert quiet(path).max_file_length_bytes == size_bytes


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ('journalMaxFileLength="32 MiB"', "not a size"),
        ('journalMaxFileLength="1kb"', "must be at least 64KiB"),
        ('checkpointInterval="5s"', "not a whole number"),
        ('checkpointInterval="0"', "must be seconds"),
        ('journalDiskSyncStrategy="sometimes"', "none of always, periodic, never"),
        ('enableJournalDiskSyncs="yes"', 'neither "true" nor "false"'),
        ('indexCacheSize="1"', "must be at least 256KiB"),
        ('checksumJournalFiles="false"', "every record has a checksum"),
        ('cleanupInterval="${cleanup}"', "the placeholder ${cleanup} is not resolved"),
        ("cleanupInterval=\"#{T(java.lang.Runtime).getRuntime().exec('x')}\"", "is not resolved"),
        ('noSuchThing="1"', "no setting corresponds to it"),
    ],
)
def test_a_value_that_cannot_be_honoured_is_named_and_the_default_stays(
    properties: str, problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path, broker(f"<kahaDB {properties}/>"))
    [finding] = read_activemq(path, Settings).findings
    assert (finding.becomes, finding.line) == ("", 2)
    assert problem in finding.problem
    assert quiet(path) == Settings()


def test_of_two_properties_that_disagree_the_later_invention_wins_and_the_other_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, broker('<kahaDB enableJournalDiskSyncs="false" journalDiskSyncStrategy="ALWAYS"/>'))
    switch, strategy = read_activemq(path, Settings).findings
    assert "sync is 'always' already" in switch.problem
    assert strategy.becomes == 'sync="always"'


def test_memory_is_set_before_what_depends_on_it(tmp_path: Path) -> None:
    """An index cache of 16 MiB needs a memory limit of 32 MiB, wherever in the file that stands."""
    limit = '<memoryUsage limit="32mb"/>'
    for inside in ([limit, '<kahaDB indexCacheSize="4096"/>'], ['<kahaDB indexCacheSize="4096"/>', limit]):
        settings = quiet(written(tmp_path, broker(*inside)))
        assert (settings.memory_limit_bytes, settings.index_cache_size_bytes) == (32 * 2**20, 16 * 2**20)


def test_a_broker_name_that_can_be_no_directory_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, broker(attributes='brokerName="../other"'))
    [finding] = read_activemq(path, Settings).findings
    assert "cannot be a directory" in finding.problem
    assert quiet(path).broker_name == "localhost"


# ------------------------------------------------------------------ policies


def test_what_the_whole_broker_says_holds_for_each_policy_that_does_not_say_otherwise(tmp_path: Path) -> None:
    entries = (
        '<policyEntry queue="a" sendFailIfNoSpace="false"/>',
        '<policyEntry queue="b" producerFlowControl="true"/>',
    )
    path = written(tmp_path, broker(*entries, '<systemUsage sendFailIfNoSpace="true"/>'))
    policies = quiet(path).policies
    assert {pattern: policy.when_full for pattern, policy in policies.items()} == {
        "a": "block",
        "b": "fail",
        ">": "fail",
    }


def test_an_entry_of_which_nothing_is_honoured_still_keeps_a_less_specific_one_from_deciding(tmp_path: Path) -> None:
    entries = ('<policyEntry queue=">" queuePrefetch="10"/>', '<policyEntry queue="a" memoryLimit="1mb"/>')
    policies = quiet(written(tmp_path, broker(*entries))).policies
    assert {pattern: policy.prefetch for pattern, policy in policies.items()} == {">": 10, "a": 1000}


def test_an_entry_for_temporary_destinations_becomes_no_policy(tmp_path: Path) -> None:
    entries = [f'<policyEntry {kind}="a.>" queuePrefetch="1"/>' for kind in ("tempQueue", "tempTopic")]
    path = written(tmp_path, broker(*entries))
    findings = read_activemq(path, Settings).findings
    assert [finding.problem for finding in findings] == ["there are no temporary destinations"] * 2
    assert quiet(path).policies == {}


LIMIT = f'<pendingMessageLimitStrategy><{LIMIT_STRATEGY} limit="{{}}"/></pendingMessageLimitStrategy>'
EVICTION = "<messageEvictionStrategy><{}/></messageEvictionStrategy>"


@pytest.mark.parametrize(
    ("inside", "policy"),
    [
        (LIMIT.format(50), DestinationPolicy(subscriber_max_messages=50)),
        (LIMIT.format(-1), DestinationPolicy()),
        (EVICTION.format("oldestMessageEvictionStrategy"), DestinationPolicy()),
        (
            LIMIT.format(50) + EVICTION.format("oldestMessageWithLowestPriorityEvictionStrategy"),
            DestinationPolicy(subscriber_max_messages=50, eviction="lowest_priority"),
        ),
        (
            EVICTION.format('uniquePropertyMessageEvictionStrategy propertyName="STOCK"'),
            DestinationPolicy(eviction="latest_per_key", eviction_key="STOCK"),
        ),
        (
            "<deadLetterStrategy><individualDeadLetterStrategy/></deadLetterStrategy>",
            DestinationPolicy(dead_letter_queue="ActiveMQ.DLQ.Topic.{name}"),
        ),
    ],
)
def test_what_slow_subscribers_of_a_topic_lose_becomes_a_policy(
    inside: str, policy: DestinationPolicy, tmp_path: Path
) -> None:
    path = written(tmp_path, broker(f'<policyEntry topic="prices.>">{inside}</policyEntry>'))
    assert all(finding.becomes for finding in read_activemq(path, Settings).findings)
    assert quiet(path).policies.get("prices.>", DestinationPolicy()) == policy


@pytest.mark.parametrize(
    ("kind", "inside", "problem"),
    [
        ("queue", LIMIT.format(50), "of no effect on queues"),
        ("queue", EVICTION.format("oldestMessageWithLowestPriorityEvictionStrategy"), "of no effect on queues"),
        ("topic", '<individualDeadLetterStrategy topicPrefix="T." queuePrefix="Q."/>', "of no effect on topics"),
        ("topic", LIMIT.format(0), "a subscriber that holds nothing"),
    ],
)
def test_what_has_no_effect_on_a_kind_of_destination_is_named(
    kind: str, inside: str, problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path, broker(f'<policyEntry {kind}="a.>">{inside}</policyEntry>'))
    [found] = [finding for finding in read_activemq(path, Settings).findings if finding.problem]
    assert problem in found.problem


def test_entries_of_queues_and_of_topics_decide_each_for_its_kind_wherever_their_names_overlap(tmp_path: Path) -> None:
    """A name has here what each of ActiveMQ's two maps says of it."""
    chosen = random.Random(5)
    patterns = ["a.b.c", "a.*.c", "*.b.*", "a.*.*", "*.*.c", "a.b.>", "a.>", "*.b.>", ">", "a", "b.*"]
    names = [".".join(words) for n in (1, 2, 3, 4) for words in itertools.product("abcd", repeat=n)]
    for _ in range(40):
        queues = {pattern: n for n, pattern in enumerate(chosen.sample(patterns, chosen.randrange(1, 6)), 10)}
        topics = {pattern: n for n, pattern in enumerate(chosen.sample(patterns, chosen.randrange(1, 6)), 100)}
        path = written(
            tmp_path,
            broker(
                *(f'<policyEntry queue="{pattern}" queuePrefetch="{n}"/>' for pattern, n in queues.items()),
                *(f'<policyEntry topic="{pattern}">{LIMIT.format(n)}</policyEntry>' for pattern, n in topics.items()),
            ),
        )
        policies = quiet(path).policies
        for name in names:
            prefetch = policy_for({each: DestinationPolicy(prefetch=n) for each, n in queues.items()}, name).prefetch
            waiting = policy_for(
                {each: DestinationPolicy(subscriber_max_messages=n) for each, n in topics.items()}, name
            ).subscriber_max_messages
            found = policy_for(policies, name)
            assert (found.prefetch, found.subscriber_max_messages) == (prefetch, waiting), (name, queues, topics)


def test_what_an_entry_of_topics_says_of_both_kinds_yields_to_queues_and_is_said_to_hold_for_them(
    tmp_path: Path,
) -> None:
    entries = (
        '<policyEntry topic="prices.>" topicPrefetch="500" queuePrefetch="1"/>',
        '<policyEntry topic="orders.>" topicPrefetch="500"/>',
        '<policyEntry queue="orders.>" queuePrefetch="10" topicPrefetch="2"/>',
        '<policyEntry queue=">" queuePrefetch="20"/>',
    )
    path = written(tmp_path, broker(*entries))
    free, of_queues, bound, own, of_topics, _ = read_activemq(path, Settings).findings
    assert "holds for queues of these names too" in free.warning
    assert (of_queues.problem, of_topics.problem) == ("of no effect on topics", "of no effect on queues")
    assert "the entry of the queues of these names decides for topics too: prefetch=10" in bound.problem
    assert own.becomes == 'policies["orders.>"].prefetch=10'
    policies = quiet(path).policies
    assert {pattern: policy.prefetch for pattern, policy in policies.items()} == {
        "orders.>": 10,
        ">": 20,
        "prices.>": 500,
    }


def test_a_redelivery_policy_leaves_the_policy_entry_around_its_queue_in_force(tmp_path: Path) -> None:
    entries = ('<policyEntry queue=">" queuePrefetch="10"/>', '<redeliveryPolicy queue="a" maximumRedeliveries="1"/>')
    policies = quiet(written(tmp_path, broker(*entries))).policies
    assert policies["a"] == DestinationPolicy(prefetch=10, max_attempts=2)


@pytest.mark.parametrize(
    ("attributes", "window"),
    [
        ('enableAudit="true"', 2048),
        ('enableAudit="false"', 0),
        ('maxAuditDepth="100"', 100),
        ('enableAudit="true" maxAuditDepth="100"', 100),
        ('enableAudit="false" maxAuditDepth="100"', 0),
        ("", 0),
    ],
)
def test_an_audit_of_message_ids_becomes_a_duplicate_window(attributes: str, window: int, tmp_path: Path) -> None:
    path = written(tmp_path, broker(f'<policyEntry queue="a" queuePrefetch="1" {attributes}/>'))
    assert quiet(path).policies["a"].duplicate_window == window
    problems = [finding.problem for finding in read_activemq(path, Settings).findings if finding.problem]
    is_off = "false" in attributes and "Depth" in attributes
    assert problems == ['of no effect without enableAudit="true"'] * is_off


def test_the_audit_of_a_kahadb_holds_for_each_policy_that_does_not_say_otherwise(tmp_path: Path) -> None:
    store = '<kahaDB failoverProducersAuditDepth="300" maxFailoverProducersToTrack="64"/>'
    path = written(tmp_path, broker('<policyEntry queue="a" enableAudit="true"/>', store))
    policies = quiet(path).policies
    assert {pattern: policy.duplicate_window for pattern, policy in policies.items()} == {"a": 2048, ">": 300}
    assert "share a sixteenth of memory_limit" in findings_of(path, "kahaDB maxFailover")[0].problem


def test_the_memory_limit_of_a_destination_becomes_the_memory_share_of_its_pattern(tmp_path: Path) -> None:
    path = written(tmp_path, broker('<policyEntry queue="a" memoryLimit="1mb"/>'))
    with pytest.warns(SettingsWarning, match="all destinations of the pattern together"):
        settings = Settings.from_activemq(path)
    assert settings.policies["a"].memory_share == "1MiB"


ONE_OF_ELEVEN = [".".join("a" if place == n else "*" for place in range(11)) for n in range(11)]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([f'<policyEntry queue="{",".join(map(str, range(1001)))}" queuePrefetch="1"/>'], "more than 1,000 patterns"),
        (
            [
                f'<policyEntry {kind}="{each}" {kind}Prefetch="1"/>'
                for kind in ("queue", "topic")
                for each in ONE_OF_ELEVEN
            ],
            "overlap in more than 1,000 ways",
        ),
        (
            [f'<policyEntry queue="{",".join(map(str, range(900)))}">', *["<systemUsage sendFailIfNoSpace='1'/>"] * 60]
            + ["</policyEntry>"],
            "more than 50,000 properties",
        ),
    ],
)
def test_a_file_of_which_policies_would_take_long_is_refused(entries: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=problem):
        read_activemq(written(tmp_path, broker(*entries)), Settings)


def test_a_store_for_some_destinations_only_is_passed_over_beside_the_one_for_all(tmp_path: Path) -> None:
    def stores(*filters: str) -> str:
        inside = "".join(
            f"<filteredKahaDB {text}><persistenceAdapter><kahaDB journalMaxFileLength='{n}mb'/></persistenceAdapter>"
            "</filteredKahaDB>"
            for n, text in enumerate(filters, 1)
        )
        return broker(f"<mKahaDB><filteredPersistenceAdapters>{inside}</filteredPersistenceAdapters></mKahaDB>")

    for filters, megabytes in (
        (["queue='a'", ""], 2),
        (["queue='>'", "queue='a'"], 1),
        (["queue='a'"], 1),
        (["queue='a'", "queue='b'"], 32),
        (["perDestination='true'"], 1),
    ):
        settings = quiet(written(tmp_path, stores(*filters)))
        assert settings.max_file_length_bytes == megabytes * 2**20, filters


# ------------------------------------------------------------------ files and the command


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<beans/>", "line 1: <beans> without a <broker>"),
        ("<html>\n<body/></html>", "line 1: <html> without a <broker>"),
        ("<beans>\n<broker/>\n<broker/></beans>", "line 1: brokers at lines 2, 3: keep one of them"),
        ("<broker>\n", "line 2: no element found"),
        ("", "line 1: no element found"),
        ("<!DOCTYPE broker [<!ENTITY x 'y'>]><broker>&x;</broker>", "line 1: a document type"),
    ],
)
def test_what_is_no_configuration_ends_with_2_and_one_line(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError, match=re.escape(problem)):
        Settings.from_activemq(path)
    assert main(["settings", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith(f"forebay: {path}, {problem}")


def test_a_missing_file_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", str(tmp_path / "missing.xml")]) == 2
    assert "can't be read" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["default", "amq-store", "tuned-kahadb"])
def test_the_command_prints_a_line_a_property_and_a_call_that_opens(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = SAMPLES / f"{name}.xml"
    assert main(["settings", str(path)]) == 0
    head, *lines, empty, summary, call = capsys.readouterr().out.splitlines()
    findings = read_activemq(path, Settings).findings
    assert head.split() == ["line", "property", "value", "becomes"]
    for line, finding in zip(lines, findings, strict=True):
        assert line.startswith(str(finding.line)) and finding.property in line
        assert line.endswith(finding.warning or finding.becomes or f"not honoured: {finding.problem}")
    assert (empty, summary.split()[-2:]) == ("", ["are", "honoured"])
    names = {"forebay": forebay, "directory": tmp_path, "DestinationPolicy": DestinationPolicy}
    with eval(call, names) as bay:
        assert bay.settings == quiet(path)


def test_the_command_prints_the_same_as_json_and_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = SAMPLES / "tuned-kahadb.xml"
    assert main(["settings", "--json", str(path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    findings = read_activemq(path, Settings).findings
    assert printed["properties"] == [finding._asdict() for finding in findings]
    assert set(printed["settings"]) <= {field.name for field in dataclasses.fields(Settings)}
    assert main(["settings", "--toml", str(path)]) == 0
    (tmp_path / "same.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert Settings.from_toml(tmp_path / "same.toml") == quiet(path)


def test_a_secret_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", str(SAMPLES / "tuned-kahadb.xml")]) == 0
    assert "never-shown" not in capsys.readouterr().out


def test_a_hostile_value_reaches_the_terminal_short_and_printable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = f"\u009b31m\u202e{'x' * 10_000}"
    store = f'<kahaDB directory="{hostile}"/>'
    path = written(tmp_path, broker(store, attributes=f'brokerName="{hostile}" dataDirectory="${{{hostile}"'))
    assert main(["settings", str(path)]) == 0
    printed = capsys.readouterr().out
    assert all(line.isprintable() and len(line) < 400 for line in printed.splitlines())


def test_no_mutation_of_a_sample_does_anything_but_settings_or_a_refusal(tmp_path: Path) -> None:
    chosen = random.Random(11)
    attributes = [row.property for _, row, _ in rows() if row.property] + ["queue", "topic"]
    texts = ["", "0", "-1", "9" * 40, "true", "64 mb", "${x}", "nan", "inf", ">", "a,,b", "a..b", "*", "\u0663", "1e9"]
    elements = [*PROPERTIES, *POLICY_PROPERTIES, "mKahaDB", "plugins", "persistenceAdapter", "x"]
    for _ in range(300):
        inside = ""
        for _ in range(chosen.randrange(6)):
            pairs = {chosen.choice(attributes): chosen.choice(texts) for _ in range(chosen.randrange(4))}
            joined = " ".join(f"{key}={quoteattr(text)}" for key, text in pairs.items())
            element = chosen.choice(elements)
            inside = f"<{element} {joined}>{inside}</{element}>" + (inside if len(inside) < 2000 else "")
        path = written(tmp_path, broker(inside.replace("<broker ", "<x ").replace("</broker>", "</x>")))
        found = read_activemq(path, Settings)
        assert Settings(**found.fields)
        assert all(bool(finding.becomes) != bool(finding.problem) for finding in found.findings), found
