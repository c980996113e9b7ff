"""How the worker gets into a log that wants TLS or a password: settings of librdkafka under Java's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.capture.worker import WorkerSettings, hidden, java_client_settings, worker_properties
from headrace.errors import InvalidConfig

SCRAM = {
    "security.protocol": "sasl_ssl",
    "ssl.ca.location": "/etc/kafka/ca.pem",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "shop",
    "sasl.password": 'a"b\\c',
}


def test_an_account_has_javas_names() -> None:
    assert java_client_settings(SCRAM) == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/kafka/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="shop" password="a\\"b\\\\c";',
    }


def test_a_name_that_is_not_looked_at_is_nothing_in_java() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert java_client_settings({name: "none"}) == {name: ""}
    assert java_client_settings({name: "https"}) == {name: "https"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}, "certificate"),
    ],
)
def test_what_java_has_no_counterpart_for_is_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        java_client_settings(settings)


def test_what_is_of_no_concern_for_access_is_left_out() -> None:
    assert java_client_settings({"queue.buffering.max.ms": "5", "client.id": "x"}) == {}


def test_a_connectors_configuration_refers_to_secrets_which_only_the_environment_has() -> None:
    told, secrets = hidden(java_client_settings(SCRAM))
    assert 'a"b' not in str(told)
    assert told["sasl.jaas.config"] == "${env:HEADRACE_SECRET_LOG_0}"
    assert list(secrets) == ["HEADRACE_SECRET_LOG_0"]


def test_the_worker_and_all_its_clients_get_in(tmp_path: Path) -> None:
    found = worker_properties(WorkerSettings("app", "log:9093", tmp_path, tmp_path, client=SCRAM), 8083)
    for role in ("", "producer.", "consumer.", "admin."):
        assert found[f"{role}security.protocol"] == "SASL_SSL"
        assert found[f"{role}sasl.jaas.config"] == "${env:HEADRACE_SECRET_LOG_0}"
    assert "env" in found["config.providers"]
    assert 'a"b' not in str(found)
