"""DescribeClientQuotas, AlterClientQuotas."""

from typing import Any

from tests.contract.session import Session, in_every_version

EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
LARGE = 1e12
"""More than any client sends: other scenarios are held at the same time."""


def _entity(*parts: tuple[str, str | None]) -> list[Any]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]


def _alter(s: Session, entity: list[Any], *ops: tuple[str, float | None], version: int = 1, **more: Any) -> Any:
    told = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops]
    return s.call(
        "alter_client_quotas", version, **{"entries": [{"entity": entity, "ops": told}], "validate_only": False, **more}
    )


def _ask(s: Session, *components: tuple[str, int, str | None], version: int = 1, strict: bool = False) -> Any:
    told = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    return s.ask("describe_client_quotas", version, components=told, strict=strict)


def _described(s: Session, client: str, version: int = 1) -> dict[str, float]:
    entries = _ask(s, ("client-id", EXACT, client), version=version)["entries"]
    return {value["key"]: value["value"] for entry in entries for value in entry["values"]}


def _settled(s: Session, client: str, rates: dict[str, float]) -> None:
    s.until(lambda: _described(s, client) == rates, f"quotas {rates}")


@in_every_version("alter_client_quotas")
def quotas_are_set_changed_and_taken_away(s: Session) -> None:
    client = s.name("client")
    entity = _entity(("client-id", client))
    _alter(s, entity, (PRODUCER, LARGE), (CONSUMER, LARGE), version=s.version)
    _settled(s, client, {PRODUCER: LARGE, CONSUMER: LARGE})
    _alter(s, entity, (PRODUCER, 2 * LARGE), (CONSUMER, None), version=s.version)
    _settled(s, client, {PRODUCER: 2 * LARGE})
    _alter(s, entity, (CONSUMER, None), version=s.version)
    _alter(s, entity, (PRODUCER, LARGE), version=s.version, validate_only=True)
    s.note("as they were", _described(s, client))
    _alter(s, entity, (PRODUCER, None), version=s.version)
    _settled(s, client, {})


@in_every_version("describe_client_quotas")
def quotas_are_found_by_filters(s: Session) -> None:
    client = s.name("client")
    _alter(s, _entity(("client-id", client)), (PRODUCER, LARGE))
    _settled(s, client, {PRODUCER: LARGE})
    for strict in (False, True):
        for component in (("client-id", EXACT, client), ("client-id", ANY, None), ("client-id", EXACT, "nobody")):
            found = _ask(s, component, version=s.version, strict=strict)
            ours = [one for one in found["entries"] if one["entity"][0]["entity_name"] == client]
            s.note(f"{component[1]} {strict}", {**found, "entries": ours})
    found = _ask(s, version=s.version)
    s.note("all", [one for one in found["entries"] if one["entity"][0]["entity_name"] == client])
    s.note("users", _ask(s, ("user", ANY, None), ("client-id", EXACT, client), version=s.version))
    _alter(s, _entity(("client-id", client)), (PRODUCER, None))


def the_default_is_for_all_clients(s: Session) -> None:
    _alter(s, _entity(("client-id", None)), (CONSUMER, LARGE))
    s.until(lambda: _ask(s, ("client-id", DEFAULT, None))["entries"], "the default")
    s.note("default", _ask(s, ("client-id", DEFAULT, None)))
    _alter(s, _entity(("client-id", None)), (CONSUMER, None))
    s.until(lambda: not _ask(s, ("client-id", DEFAULT, None))["entries"], "no default")


def quotas_that_cannot_be(s: Session) -> None:
    client = s.name("client")
    entity = _entity(("client-id", client))
    for key, value in (
        ("nonsense", 1.0),
        (PRODUCER, -1.0),
        (PRODUCER, 1.5),
        (CONSUMER, 1e30),
    ):
        _alter(s, entity, (key, value))
    _alter(s, [], (PRODUCER, 1.0))
    _alter(s, _entity(("client-id", "")), (PRODUCER, 1.0))
    _alter(s, _entity(("planet", "earth")), (PRODUCER, 1.0))
    s.note("nothing", _described(s, client))


def filters_that_cannot_be(s: Session) -> None:
    for components in (
        [("", ANY, None)],
        [("planet", ANY, None)],
        [("client-id", ANY, None), ("client-id", EXACT, "x")],
        [("client-id", EXACT, None)],
        [("client-id", DEFAULT, "x")],
        [("client-id", ANY, "x")],
        [("client-id", 7, None)],
        [("ip", ANY, None), ("client-id", ANY, None)],
    ):
        s.note(str(components), _ask(s, *components))


def users_have_no_quotas_here(s: Session) -> None:
    for entity in (_entity(("user", "ann")), _entity(("user", "ann"), ("client-id", s.name("client")))):
        _alter(s, entity, (PRODUCER, LARGE), validate_only=True)
    _alter(s, _entity(("client-id", s.name("client"))), ("request_percentage", 100.0), validate_only=True)
