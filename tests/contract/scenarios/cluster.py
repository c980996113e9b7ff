"""The broker about itself: versions, cluster, log folders, and the empty answers."""

from typing import Any

from tests.contract.batches import batch
from tests.contract.session import VERSIONS, Session, in_every_version


@in_every_version("api_versions")
def versions_of_the_apis_that_we_have(s: Session) -> None:
    answer = s.ask("api_versions", s.version, client_software_name="contract", client_software_version="1.0")
    from tests.contract.schema import KEYS

    ours = {KEYS[name] for name in VERSIONS}
    s.note("ranges", [one for one in answer["api_keys"] if one["api_key"] in ours])
    s.note("error", answer["error_code"])


def software_names_that_cannot_be(s: Session) -> None:
    for name, version in (("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a.b-c", "1.0-x"), ("é", "1")):
        answer = s.ask("api_versions", 3, client_software_name=name, client_software_version=version)
        s.note(f"{name!r} {version!r}", answer["error_code"])


def a_version_of_api_versions_from_the_future(s: Session) -> None:
    connection = s.connect()
    connection.send_bytes("api_versions", 99, b"\x02x\x021\0")
    frame = connection.receive_frame()
    s.note("body", frame[4:6].hex())
    s.note("lists itself", b"\x00\x12\x00\x00\x00\x04" in frame)
    s.note("still open", connection.call("api_versions", 0)["error_code"])


def versions_that_do_not_exist_close_the_connection(s: Session) -> None:
    for api in ("metadata", "fetch", "produce", "create_topics"):
        connection = s.connect()
        connection.send_bytes(api, VERSIONS[api][1] + 1, b"\0" * 20)
        s.note(api, connection.closed())


def versions_too_old_close_the_connection(s: Session) -> None:
    import struct

    for key, version in ((0, 2), (1, 3), (2, 0), (8, 1), (9, 0), (19, 1), (20, 0), (32, 0)):
        connection = s.connect()
        connection.send_frame(struct.pack(">hhih", key, version, 1, -1) + b"\0" * 20)
        s.note(f"{key} v{version}", connection.closed())


def apis_that_do_not_exist_close_the_connection(s: Session) -> None:
    for key in (4, 5, 6, 7, 52, 93, 999, -1, 32767):
        connection = s.connect()
        connection.send_bytes("metadata", 1, b"\0" * 20, key=key)
        s.note(f"{key}", connection.closed())


def garbage_closes_the_connection(s: Session) -> None:
    for frame in (b"", b"\0", b"\0\x03", b"\xff" * 30, b"\0\x12\0\0" + b"\xff" * 3):
        connection = s.connect()
        connection.send_frame(frame)
        s.note(frame.hex(), connection.closed())
    for length in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0"):
        connection = s.connect()
        connection.socket.sendall(length)
        s.note(length.hex(), connection.closed())


def counts_larger_than_the_bytes_close_the_connection(s: Session) -> None:
    for api, version, body in (
        ("metadata", 1, b"\x7f\xff\xff\xff"),
        ("metadata", 12, b"\xff\xff\xff\xff\x07"),
        ("metadata", 1, b"\0\0\0\x02\0\x01a"),
        ("produce", 9, b"\0\xff\xff"),
        ("create_topics", 5, b"\xff\xff\xff\xff\x0f"),
        ("metadata", 1, b"\xff\xff\xff\xfe"),
        ("metadata", 1, b"\0\0\0\x01\xff\xff"),
    ):
        connection = s.connect()
        connection.send_bytes(api, version, body)
        s.note(f"{api} {version} {body.hex()}", connection.closed())


def bytes_after_a_request(s: Session) -> None:
    connection = s.connect()
    connection.send_bytes("metadata", 1, b"\0\0\0\0" + b"extra")
    s.note("answered", connection.receive()[1])


def unknown_tagged_fields_are_skipped(s: Session) -> None:
    connection = s.connect()
    connection.send_bytes("metadata", 12, b"\x01\0\0\x01\x63\x02hi")
    s.note("answered", connection.receive()[1])


def requests_in_flight_are_answered_in_order(s: Session) -> None:
    topic = s.topic()
    connection = s.connect()
    sent = []
    for number in range(50):
        sent.append(connection.send("metadata", 5, topics=[{"name": topic.name}], allow_auto_topic_creation=False))
        sent.append(connection.send("produce", 9, **s.produce_body(topic, batch([(b"%d" % number, b"v")]))))
    got = [connection.receive() for _ in sent]
    s.note("in order", [one for one, _ in got] == sent)
    offsets = [tree["responses"][0]["partition_responses"][0]["base_offset"] for _, tree in got[1::2]]
    s.note("offsets", offsets == list(range(50)))


def a_client_may_have_no_name(s: Session) -> None:
    from tests.contract.raw import Connection

    with Connection(s.bootstrap, client_id=None) as connection:
        s.note("answered", connection.call("metadata", 5, topics=[]))
    with Connection(s.bootstrap, client_id="") as connection:
        s.note("answered", connection.call("metadata", 5, topics=[]))


@in_every_version("describe_cluster")
def the_cluster(s: Session) -> None:
    s.call("describe_cluster", s.version, include_cluster_authorized_operations=False, endpoint_type=1)
    s.call("describe_cluster", s.version, include_cluster_authorized_operations=True, endpoint_type=1)
    if s.version >= 1:
        s.call("describe_cluster", s.version, endpoint_type=2)
        s.call("describe_cluster", s.version, endpoint_type=9)


@in_every_version("describe_log_dirs")
def log_folders(s: Session) -> None:
    topic = s.topic(partitions=2)
    s.fill(topic, batch())
    for partitions in ([0, 1], [0], [7], []):
        s.call("describe_log_dirs", s.version, topics=[{"topic": topic.name, "partitions": partitions}])
    everything = s.ask("describe_log_dirs", s.version, topics=None)
    mine = [one for folder in everything["results"] for one in folder["topics"] if one["name"] == topic.name]
    s.note("mine", mine)


@in_every_version("describe_acls")
def there_are_no_rules(s: Session) -> None:
    body: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    s.call("describe_acls", s.version, **body)


def nothing_moves(s: Session) -> None:
    topic = s.topic()
    s.call("list_partition_reassignments", 0, timeout=1000, topics=None)
    s.call("list_partition_reassignments", 0, timeout=1000, topics=[{"name": topic.name, "partition_indexes": [0]}])
    s.call(
        "list_partition_reassignments", 0, timeout=1000, topics=[{"name": s.name("nowhere"), "partition_indexes": [0]}]
    )


@in_every_version("elect_leaders")
def leaders_are_elected_already(s: Session) -> None:
    topic = s.topic()
    for kind in (0, 1):
        for partition in (0, 8):
            body = [{"topic": topic.name, "partitions": [partition]}]
            s.call("elect_leaders", s.version, election_type=kind, topic_partitions=body, timeout=5000)
    s.call(
        "elect_leaders",
        s.version,
        election_type=0,
        topic_partitions=[{"topic": s.name("nowhere"), "partitions": [0]}],
        timeout=5000,
    )
