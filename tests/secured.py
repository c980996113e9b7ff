"""An Apache Kafka broker that wants TLS and a password."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.servers import ApacheKafka

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecureKafka(ApacheKafka):
    """A broker that talks to nobody without TLS and a password; user admin has one from the start."""

    def __init__(self, folder: Path, *, password: str = "secret", heap: str = "384m") -> None:
        self._password = password
        super().__init__(folder, heap=heap)

    def _settings(self, extra: Mapping[str, str]) -> dict[str, str]:
        certificate(self.folder)
        listener = "listener.name.sasl_ssl"
        account = f'username="admin" password="{self._password}" user_admin="{self._password}"'
        return {
            **super()._settings({}),
            "listeners": f"SASL_SSL://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"SASL_SSL://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{listener}.plain.sasl.jaas.config": f"{_PLAIN} {account};",
            f"{listener}.scram-sha-256.sasl.jaas.config": _SCRAM,
            f"{listener}.scram-sha-512.sasl.jaas.config": _SCRAM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "both.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "certificate.pem"),
            **extra,
        }


def certificate(folder: Path) -> None:
    """A key, and a certificate that it signed itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kafka -addext subjectAltName=IP:127.0.0.1"
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem"))
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())


def account(server: SecureKafka, mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(server.folder / "certificate.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
