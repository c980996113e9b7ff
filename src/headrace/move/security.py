"""How a connection proves who it is: TLS and SASL (PLAIN, SCRAM), by the settings that librdkafka has for them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.errors import InvalidConfig

__all__ = ["Security"]

_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", *_DIGESTS)
_VERIFICATION = "enable.ssl.certificate.verification"
_NO = ("false", "f", "0")
_KNOWN = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
"""Settings of TLS that are honoured here."""

Exchange = Callable[[bytes], bytes]
"""Sends what the client says and gives what the server answers."""


class Security:
    """What the settings ask for; InvalidConfig for what this client cannot do."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        protocol = settings.get("security.protocol", "plaintext").lower()
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI")).upper()
        if protocol not in _PROTOCOLS:
            raise InvalidConfig(f"security.protocol {protocol!r} is none of {', '.join(_PROTOCOLS)}.")
        self.mechanism = mechanism if protocol.startswith("sasl") else None
        if self.mechanism is not None and mechanism not in _MECHANISMS:
            raise InvalidConfig(
                f"records cannot be moved over SASL mechanism {mechanism}.",
                hint=f"give the move an account with one of {', '.join(_MECHANISMS)} (-X sasl.mechanism=...)",
            )
        self._context = self._tls() if protocol.endswith("ssl") else None

    @property
    def verifies(self) -> bool:
        """Whether the server must prove who it is."""
        return self._context is not None and self._context.verify_mode is ssl.CERT_REQUIRED

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """The connection, encrypted if it is to be."""
        if self._context is None:
            return plain
        return self._context.wrap_socket(plain, server_hostname=host)

    def authenticate(self, exchange: Exchange) -> None:
        """Say who we are, in as many messages as the mechanism takes."""
        user, password = self._settings.get("sasl.username", ""), self._settings.get("sasl.password", "")
        if self.mechanism == "PLAIN":
            exchange(b"\0".join((b"", user.encode(), password.encode())))
        elif self.mechanism is not None:
            _scram(_DIGESTS[self.mechanism], user, password, exchange)

    def _tls(self) -> ssl.SSLContext:
        told = self._settings
        unknown = sorted(name for name in told if name.startswith("ssl.") and name not in _KNOWN)
        if unknown:
            raise InvalidConfig(
                f"records cannot be moved with {', '.join(unknown)}.",
                hint=f"of the settings of TLS a move knows {', '.join(_KNOWN)} (PEM files)",
            )
        try:
            context = _trusting(told.get("ssl.ca.location"), told.get("ssl.ca.pem"))
            if told.get("ssl.certificate.location"):
                certificate, key = told["ssl.certificate.location"], told.get("ssl.key.location")
                context.load_cert_chain(certificate, key, told.get("ssl.key.password") or "")
        except OSError as error:
            names = ", ".join(name for name in _KNOWN if name in told and name != "ssl.key.password")
            raise InvalidConfig(f"the certificates of {names} cannot be used.", detail=str(error)) from None
        verified = told.get(_VERIFICATION, "true").lower() not in _NO
        if not verified or told.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if not verified:
            context.verify_mode = ssl.CERT_NONE
        return context


def _trusting(location: str | None, pem: str | None) -> ssl.SSLContext:
    """Certificates of a file or a folder, or, with neither (``probe`` says so too), those of the system."""
    where = None if location == "probe" else location
    if where is not None and Path(where).is_dir():
        return ssl.create_default_context(capath=where, cadata=pem)
    return ssl.create_default_context(cafile=where, cadata=pem)


def _scram(digest: str, user: str, password: str, exchange: Exchange) -> None:
    """RFC 5802, without channel binding."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={secrets.token_urlsafe(24)}"
    answer = exchange(b"n,," + first.encode()).decode()
    said = dict(part.split("=", 1) for part in answer.split(","))
    final = f"c=biws,r={said['r']}"
    signed = f"{first},{answer},{final}".encode()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(said["s"]), int(said["i"]))
    client = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client).digest(), signed, digest)
    proof = bytes(one ^ other for one, other in zip(client, signature, strict=True))
    answer = exchange(f"{final},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if answer.split(",")[0] != f"v={base64.b64encode(expected).decode()}":
        raise InvalidConfig("the server does not know the password that it asks for.")
