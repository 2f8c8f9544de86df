"""Settings from an activemq.xml: what each property becomes, and that none is passed over in silence."""

from __future__ import annotations

import dataclasses
import random
import re
import warnings
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

import forebay
from forebay import DestinationPolicy, Settings, SettingsError, SettingsWarning
from forebay.__main__ import main
from forebay.dispatch.config.activemq_importer import Finding, read_activemq
from forebay.dispatch.config.activemq_mapping import POLICY_PROPERTIES, PROPERTIES, UNKNOWN_ELEMENTS, rows

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
}
"""For each field that there is: a property's text, and what the field should be."""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "activemq.xml"
    path.write_text(text, encoding="utf-8")
    return path


def broker(*inside: str, attributes: str = "") -> str:
    return f'<broker xmlns="http://activemq.apache.org/schema/core" {attributes}>\n' + "\n".join(inside) + "</broker>"


def findings_of(path: Path, prefix: str) -> list[Finding]:
    return [finding for finding in read_activemq(path, Settings).findings if finding.property.startswith(prefix)]


def quiet(path: Path) -> Settings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingsWarning)
        return Settings.from_activemq(path)


# ------------------------------------------------------------------ the samples


def test_the_default_configuration_gives_the_default_settings_and_its_limits_of_disk() -> None:
    assert quiet(SAMPLES / "default.xml") == Settings(store_limit="100GiB", temp_limit="50GiB")


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
    assert prefetch == {">": 100, "orders.>": 10, "orders.urgent": 1, "orders.late": 1}
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
        f'{path}, line {line}: {key}="{value}" is not honoured: {problem}'
        for line, key, value, _, problem in findings
        if problem
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
    if key == "queuePrefix":
        value = f"{text}{{name}}"
    attribute = f"{key}={quoteattr(text)}"
    if key == "backOffMultiplier":
        attribute += ' useExponentialBackOff="true"'
    path = written(
        tmp_path, broker(attributes=attribute) if element == "broker" else broker(f"<{element} {attribute}/>")
    )
    [finding] = [finding for finding in read_activemq(path, Settings).findings if finding.property.endswith(f" {key}")]
    assert finding.value == text
    settings = quiet(path)
    if not is_there:
        assert finding.becomes == "" and finding.problem
        assert settings == quiet(written(tmp_path, broker(f"<{element}/>")))
    elif is_policy:
        assert finding.problem == ""
        assert getattr(settings.policies[">"], field) == value
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


def test_an_entry_for_topics_or_temporary_queues_becomes_no_policy(tmp_path: Path) -> None:
    entries = [f'<policyEntry {kind}="a.>" queuePrefetch="1"/>' for kind in ("topic", "tempQueue", "tempTopic")]
    path = written(tmp_path, broker(*entries))
    assert [finding.problem for finding in read_activemq(path, Settings).findings] == ["policies are for queues"] * 3
    assert quiet(path).policies == {}


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
        assert line.endswith(finding.becomes or f"not honoured: {finding.problem}")
    assert (empty, summary.split()[-2:]) == ("", ["are", "honoured"])
    names = {"forebay": forebay, "directory": tmp_path, "DestinationPolicy": DestinationPolicy}
    with eval(call, names) as bay:
        assert bay.settings == quiet(path)


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
    attributes = [row.property for _, row, _ in rows()] + ["queue", "topic"]
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
