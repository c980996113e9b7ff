import socket
from pathlib import Path

from headrace.testing.broker import EmbeddedBroker


def test_a_connection_that_comes_while_the_broker_stops_does_not_hold_it_up(tmp_path: Path) -> None:
    for _ in range(20):
        broker = EmbeddedBroker(tmp_path)
        broker.start()
        clients = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(20)]
        broker.stop()
        for client in clients:
            client.close()
