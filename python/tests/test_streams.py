"""Connections over asyncio: with this package, btcd and Bitcoin Core."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import packetlane
import pytest
from packetlane import _streams

HERE = Path(__file__).parent


async def echo(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
    async for message_type, payload in reader:
        writer.send(message_type, payload)
        await writer.drain()


def port_of(server: asyncio.Server) -> int:
    port = server.sockets[0].getsockname()[1]
    assert isinstance(port, int)
    return port


async def test_messages_come_back() -> None:
    server = await packetlane.serve(echo, "127.0.0.1", 0, "regtest")

    async def client(number: int) -> None:
        reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
        assert writer.version == 2 and len(writer.session_id or b"") == 32
        assert writer.get_extra_info("peername")[1] == port_of(server)
        messages = [(f"type{i}", os.urandom(i * number)) for i in range(20)]
        for message in messages:
            writer.send(*message)
        assert [await reader.read() for _ in messages] == messages
        big = os.urandom(3_000_000)
        writer.send("block", big)
        await writer.drain()
        assert await reader.read() == ("block", big)
        writer.close()
        await writer.wait_closed()
        with pytest.raises(packetlane.Closed):
            await reader.read()
        assert [message async for message in reader] == []
        with pytest.raises(packetlane.Closed):
            writer.send("ping")

    await asyncio.gather(*(client(number) for number in range(10)))
    server.close()


async def test_a_slow_reader_stops_its_peer() -> None:
    sent = 0

    async def flood(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        nonlocal sent
        for _ in range(200):
            writer.send("block", bytes(200_000))
            await writer.drain()
            sent += 1

    server = await packetlane.serve(flood, "127.0.0.1", 0, "regtest")
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    await asyncio.sleep(0.5)
    assert 10 < sent < 200
    assert len([message async for message in reader]) == 200
    server.close()


@pytest.mark.parametrize("size", [0, 1_000_000])
async def test_what_nobody_reads_is_bounded(size: int) -> None:
    connections: list[_streams._Connection] = []

    async def never(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        connections.append(reader._connection)
        await asyncio.sleep(60)

    server = await packetlane.serve(never, "127.0.0.1", 0, "regtest")
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    message = packetlane.encode_v1("regtest", "ping", bytes(size))
    writer.write(packetlane.encode_v1("regtest", "version"))
    # The peer cannot send all of it: the server stops reading.
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(flood(writer, message * (1 if size else 10_000)), 2)
    (connection,) = connections
    cost = sum(_streams.MESSAGE_COST + len(payload) for _, payload in connection.unread)
    assert cost == connection.unread_cost
    # The limit can be exceeded by one read of the socket.
    one_read = 256 * 1024
    assert _streams.MAX_UNREAD < cost < _streams.MAX_UNREAD + size + one_read // 24 * 256 + one_read
    writer.close()
    server.close()


async def flood(writer: asyncio.StreamWriter, message: bytes) -> None:
    while True:
        writer.write(message)
        await writer.drain()


@pytest.mark.parametrize("size", [0, 1_000_000])
async def test_what_comes_before_verack_is_bounded(size: int) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def exchange(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        try:
            await packetlane.exchange_versions(reader, writer, answer=True)
        except packetlane.Error as error:
            cost = sum(_streams.MESSAGE_COST + len(payload) for _, payload in reader._connection.unread)
            assert cost <= _streams.MAX_UNREAD + 1_000_000
            ended.set_result(str(error))
            raise

    server = await packetlane.serve(exchange, "127.0.0.1", 0, "regtest")
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    writer.write(packetlane.encode_v1("regtest", "version", bytes(86)))
    message = packetlane.encode_v1("regtest", "block", bytes(size))
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(flood(writer, message), 20)
    assert "the peer sent more than 65536 bytes before its verack" == await ended
    writer.close()
    server.close()


async def test_messages_before_verack_wait_in_the_reader() -> None:
    server = await packetlane.serve(echo, "127.0.0.1", 0, "regtest")
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    # They are echoed before the version.
    messages = [(f"type{i}", bytes(i)) for i in range(20)]
    for message in messages:
        writer.send(*message)
    payload = await packetlane.exchange_versions(reader, writer)
    assert _streams.USER_AGENT.encode() in payload
    assert [await reader.read() for _ in messages] == messages
    assert await reader.read() == ("sendaddrv2", b"")
    assert reader._connection.unread_cost == 0
    writer.close()
    server.close()


def reported() -> list[dict[str, object]]:
    """Collects the errors that the running loop reports from now on."""
    contexts: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    return contexts


async def test_what_is_unsent_is_bounded() -> None:
    peer: asyncio.Future[packetlane.Writer] = asyncio.get_running_loop().create_future()

    async def send(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        peer.set_result(writer)
        await reader.read()

    server = await packetlane.serve(send, "127.0.0.1", 0, "regtest")
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    theirs = await peer
    assert theirs.unsent == 0
    theirs.send("ping", b"12345678")
    assert theirs.unsent == 1 + 8 + 20
    sent = 0
    with pytest.raises(packetlane.SendBufferFull, match=r"await drain\(\)"):
        while True:
            theirs.send("block", bytes(1_000_000))
            sent += 1
            await asyncio.sleep(0)
    assert theirs.max_unsent < theirs.unsent <= theirs.max_unsent + 1_000_021
    # The refused message was not sent, and the connection continues.
    assert await reader.read() == ("ping", b"12345678")
    for _ in range(sent):
        assert (await reader.read())[0] == "block"
    await asyncio.wait_for(theirs.drain(), 10)
    assert theirs.unsent == 0
    theirs.max_unsent = 100
    theirs.send("inv", bytes(100))
    with pytest.raises(packetlane.SendBufferFull):
        theirs.send("inv")
    assert await reader.read() == ("inv", bytes(100))
    writer.close()
    server.close()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_peer_that_reads_nothing_does_not_stop_the_end(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_streams, "CLOSE_TIMEOUT", 0.5 if how == "close" else 60.0)
    errors = reported()

    async def send(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        assert await reader.read() == ("version", b"")
        for _ in range(14):
            writer.send("block", bytes(1_000_000))
        begun = time.monotonic()
        getattr(writer, how)()
        await writer.wait_closed()
        assert (time.monotonic() - begun > 0.4) is (how == "close")
        with pytest.raises(packetlane.Closed, match="0.5 s" if how == "close" else "aborted"):
            await reader.read()
        writer.abort()
        writer.close()
        done.set()

    done = asyncio.Event()
    server = await packetlane.serve(send, "127.0.0.1", 0, "regtest")
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    writer.write(packetlane.encode_v1("regtest", "version"))
    await asyncio.wait_for(done.wait(), 10)
    writer.close()
    server.close()
    await asyncio.sleep(0.05)
    assert errors == []


async def test_what_is_unsent_at_close_arrives() -> None:
    errors = reported()

    async def send(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        for _ in range(2):
            writer.send("block", bytes(2_000_000))
        writer.close()
        await writer.wait_closed()

    server = await packetlane.serve(send, "127.0.0.1", 0, "regtest")
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    assert [message async for message in reader] == [("block", bytes(2_000_000))] * 2
    writer.close()
    writer.abort()
    server.close()
    await asyncio.sleep(0.05)
    assert errors == []


async def test_v1_peers_are_answered() -> None:
    server = await packetlane.serve(echo, "127.0.0.1", 0, "regtest")
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    message = packetlane.encode_v1("regtest", "version", b"hello")
    writer.write(message + message[:30])
    assert await reader.readexactly(len(message)) == message
    writer.write(message[30:])
    assert await reader.readexactly(len(message)) == message
    writer.close()
    server.close()


async def test_falls_back_to_v1() -> None:
    connections = 0

    async def v1_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if (await reader.read(4)) == b"\xfa\xbf\xb5\xda":
            writer.write(packetlane.encode_v1("regtest", "version", b"v1"))
            await reader.read(1)
        writer.close()

    server = await asyncio.start_server(v1_only, "127.0.0.1", 0)
    with pytest.raises(packetlane.ClosedUnanswered, match="closed the connection before it answered"):
        await packetlane.connect("127.0.0.1", port_of(server), "regtest", v2_only=True)
    assert connections == 1
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    assert writer.version == 1 and writer.session_id is None and connections == 3
    writer.send("version", b"hello")
    assert await reader.read() == ("version", b"v1")
    writer.close()
    server.close()


async def test_falls_back_where_a_v1_node_speaks_first() -> None:
    connections = 0
    version = packetlane.encode_v1("regtest", "version", b"v1")

    async def speaks_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(version)
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(speaks_first, "127.0.0.1", 0)
    with pytest.raises(packetlane.ClosedUnanswered, match="the peer answered in v1"):
        await packetlane.connect("127.0.0.1", port_of(server), "regtest", v2_only=True)
    assert connections == 1
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    assert writer.version == 1 and connections == 3
    assert await reader.read() == ("version", b"v1")
    writer.close()
    server.close()


async def test_what_is_no_message_ends_no_connection() -> None:
    async def odd(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        connection = writer._connection
        if connection.session is None:
            ping = bytearray(packetlane.encode_v1("regtest", "ping", b"12345678"))
            ping[-1] ^= 1
            connection.write(bytes(ping))
        else:
            batch = packetlane.SealBatch()
            slots = [connection.session.push(batch, contents) for contents in (b"\x7f", b"", b"\0")]
            connection.turn.engine.seal(batch)
            connection.write(batch.wire_bytes(slots))
        await echo(reader, writer)

    server = await packetlane.serve(odd, "127.0.0.1", 0, "regtest")
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    writer.send("pong", b"v2")
    assert await reader.read() == ("pong", b"v2")
    session = writer._connection.session
    assert session is not None and session.ignored == 3
    writer.close()
    loop = asyncio.get_running_loop()
    # The server recognises v1 by the first message.
    _, connection = await loop.create_connection(
        lambda: _streams._Connection(loop, "regtest", None), "127.0.0.1", port_of(server)
    )
    reader, writer = packetlane.Reader(connection), packetlane.Writer(connection)
    writer.send("version", b"v1")
    assert await reader.read() == ("version", b"v1")
    assert connection.v1.ignored == 1
    writer.close()
    server.close()


async def test_exchange_versions_of_both_sides() -> None:
    server = await packetlane.serve(echo, "127.0.0.1", 0, "regtest", handshake=True)
    reader, writer = await packetlane.connect(
        "127.0.0.1", port_of(server), "regtest", handshake=True
    )
    assert await reader.read() == ("sendaddrv2", b"")
    # The server echoes ours like every message.
    assert await reader.read() == ("sendaddrv2", b"")
    writer.close()
    server.close()


async def test_versions_say_what_both_sides_are() -> None:
    peers: list[bytes | None] = []

    async def note(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        peers.append(writer.peer_version)

    long = "/" + "x" * 254 + "/"
    theirs = packetlane.Version(services=1 << 63, user_agent=long, height=900_000, relay=True)
    server = await packetlane.serve(note, "127.0.0.1", 0, "regtest", handshake=theirs)
    ours = packetlane.Version(services=9, user_agent="/mine:1/", height=-1)
    reader, writer = await packetlane.connect(
        "127.0.0.1", port_of(server), "regtest", handshake=ours
    )
    assert await reader.read() == ("sendaddrv2", b"")
    assert [message async for message in reader] == []
    version = writer.peer_version
    assert version is not None and version[:12] == struct.pack("<iQ", 70016, 1 << 63)
    assert version[80:] == b"\xfd\x00\x01" + long.encode() + struct.pack("<i?", 900_000, True)
    (version,) = peers
    assert version is not None and version[:12] == struct.pack("<iQ", 70016, 9)
    assert version[80:] == b"\x08/mine:1/" + struct.pack("<i?", -1, False)
    server.close()
    for services in (-1, 1 << 64):
        with pytest.raises(ValueError, match="do not fit 64 bits"):
            packetlane.Version(services=services)
    with pytest.raises(ValueError, match="does not fit 32 bits"):
        packetlane.Version(height=1 << 31)
    with pytest.raises(ValueError, match="longer than 256 bytes"):
        packetlane.Version(user_agent=long + "x")


async def test_a_dialler_makes_each_connection() -> None:
    """As with a proxy: for the v2 attempt and for the v1 attempt after it."""
    dialled: list[tuple[str, int]] = []

    async def v1_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.read(4)) == b"\xfa\xbf\xb5\xda":
            writer.write(packetlane.encode_v1("regtest", "version", b"v1"))
            await reader.read(1)
        writer.close()

    server = await asyncio.start_server(v1_only, "127.0.0.1", 0)

    async def dial(host: str, port: int) -> socket.socket:
        dialled.append((host, port))
        return socket.create_connection(("127.0.0.1", port_of(server)))

    reader, writer = await packetlane.connect("name.onion", 8333, "regtest", dial=dial)
    assert dialled == [("name.onion", 8333)] * 2 and writer.version == 1
    writer.send("version")
    assert await reader.read() == ("version", b"v1")
    writer.close()
    server.close()


async def test_one_timeout_for_all_steps() -> None:
    server = await packetlane.serve(echo_nothing, "127.0.0.1", 0, "signet")
    begun = time.monotonic()
    with pytest.raises(asyncio.TimeoutError, match="not connected in 0.3 s"):
        await packetlane.connect("127.0.0.1", port_of(server), "regtest", total_timeout=0.3)
    assert time.monotonic() - begun < 5
    server.close()


async def test_damage_ends_a_connection() -> None:
    async def send(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        writer.send("ping", b"12345678")
        await writer.drain()
        # One more packet, with another tag.
        session, batch = writer._connection.session, packetlane.SealBatch()
        assert session is not None
        slot = session.push(batch, b"forged")
        packetlane.Engine().seal(batch)
        wire = bytearray(batch.wire(slot))
        wire[-1] ^= 1
        writer._connection.write(bytes(wire))
        await reader.read()

    server = await packetlane.serve(send, "127.0.0.1", 0, "regtest")
    reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
    assert await reader.read() == ("ping", b"12345678")
    with pytest.raises(packetlane.BadTag):
        await reader.read()
    server.close()


async def test_what_a_callback_raises_is_reported() -> None:
    errors = reported()

    async def wrong(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        writer.send("a very long message type")

    async def gone(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        await reader.read()

    for callback in (wrong, gone):
        server = await packetlane.serve(callback, "127.0.0.1", 0, "regtest")
        reader, writer = await packetlane.connect("127.0.0.1", port_of(server), "regtest")
        if callback is gone:
            writer.close()
        with pytest.raises(packetlane.Closed):
            await reader.read()
        server.close()
    for _ in range(50):
        await asyncio.sleep(0.01)
        gc.collect()
    assert [type(error["exception"]) for error in errors] == [packetlane.MessageError]


async def test_refused_and_silent() -> None:
    with pytest.raises(OSError):
        await packetlane.connect("127.0.0.1", free_port(), "regtest")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address: tuple[str, int, packetlane.Network] = ("127.0.0.1", port_of(server), "regtest")
    with pytest.raises(packetlane.ClosedUnanswered, match="did not answer in 0.2 s"):
        await packetlane.connect(*address, timeout=0.2, v2_only=True)
    # It may be a v1 node that waits for the rest of a message.
    _, writer = await packetlane.connect(*address, timeout=0.2)
    assert writer.version == 1
    writer.close()
    with pytest.raises(asyncio.TimeoutError):
        await packetlane.connect(*address, timeout=0.2, handshake=True)
    server.close()


def test_crawler(tmp_path: Path) -> None:
    """300 local nodes in another process, 50 of them v1 only, and one address without a node."""
    command = [sys.executable, str(HERE / "listeners.py"), "300", "50", "regtest"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nodes:
        try:
            assert nodes.stdout is not None
            ports = nodes.stdout.readline().split()
            assert len(ports) == 300
            file = tmp_path / "nodes.txt"
            file.write_text("\n".join(f"127.0.0.1:{port}" for port in [*ports, free_port()]))
            crawler = str(HERE.parent / "examples" / "crawler.py")
            command = [sys.executable, crawler, "--network", "regtest", "--nodes", str(file)]
            output = subprocess.check_output(command, text=True, timeout=60)
            table = subprocess.check_output([*command, "--csv"], text=True, timeout=60)
        finally:
            nodes.kill()
    seen = [json.loads(line) for line in output.splitlines()]
    assert len(seen) == 301 and len(table.splitlines()) == 302
    assert [sum(one["transport"] == kind for one in seen) for kind in ("v1", "v2", "")] == [
        50,
        250,
        1,
    ]
    by_port = {one["address"].rpartition(":")[2]: one for one in seen}
    assert by_port[ports[0]]["known"] == ["127.0.0.1:8333"] * 2
    tor = f"network-4/{bytes(range(32)).hex()}:8333"
    assert by_port[ports[299]]["known"] == ["127.0.0.1:8333", tor]
    assert sum(bool(one["error"]) for one in seen) == 1


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_crawler_of_odd_nodes() -> None:
    """A node that knows one address, one that does not answer, and lines that are not addresses."""

    async def knows_itself(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
        async for message_type, _ in reader:
            if message_type == "getaddr":
                writer.send("addr", b"\x01" + bytes(4 + 8 + 10) + b"\xff\xff\x7f\0\0\x01" + b"\x20\x8d")

    one = await packetlane.serve(knows_itself, "127.0.0.1", 0, "regtest", handshake=True)
    mute = await packetlane.serve(echo_nothing, "127.0.0.1", 0, "regtest", handshake=True)
    nodes = [f"127.0.0.1:{port_of(one)}", f"127.0.0.1:{port_of(mute)}", "127.0.0.1:99999", "8333", "x:y"]
    crawler = str(HERE.parent / "examples" / "crawler.py")
    options = ["--network", "regtest", "--timeout", "1"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, crawler, *options, *nodes, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    seen = {node["address"]: node for node in map(json.loads, output.splitlines())}
    assert process.returncode == 0 and sorted(seen) == sorted(nodes)
    assert (seen[nodes[0]]["known"], seen[nodes[0]]["error"]) == (["127.0.0.1:8333"], "")
    assert seen[nodes[1]]["error"] == "no answer to getaddr in 1 s"
    assert {seen[node]["error"] for node in nodes[2:]} == {"expected HOST:PORT with a port from 1 to 65535"}
    one.close()
    mute.close()


async def echo_nothing(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
    async for _ in reader:
        pass


async def test_a_wrong_network_is_said_at_once() -> None:
    with pytest.raises(ValueError, match='unknown network "mainnet", expected one of main,'):
        await packetlane.serve(echo, "127.0.0.1", 0, "mainnet")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='unknown network "mainnet", expected one of main,'):
        await packetlane.connect("127.0.0.1", 1, "mainnet")  # type: ignore[arg-type]


async def test_a_timeout_says_what_did_not_come() -> None:
    other = await packetlane.serve(echo, "127.0.0.1", 0, "signet")
    with pytest.raises(asyncio.TimeoutError, match="v2 handshake in 0.3 s: it may be on another network"):
        await packetlane.connect("127.0.0.1", port_of(other), "regtest", timeout=0.3)
    mute = await packetlane.serve(echo_nothing, "127.0.0.1", 0, "regtest")
    with pytest.raises(asyncio.TimeoutError, match="did not send version and verack in 0.3 s"):
        await packetlane.connect("127.0.0.1", port_of(mute), "regtest", timeout=0.3, handshake=True)
    other.close()
    mute.close()
    # A listener whose queue is full answers no connection.
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(asyncio.TimeoutError, match=f"no TCP connection to 127.0.0.1 port {port} in 0.3 s"):
            await packetlane.connect("127.0.0.1", port, "regtest", timeout=0.3)


# Real nodes.


def free_port() -> int:
    """A free port outside the ephemeral range, so that the system does not assign it to a connection before
    the program listens on it."""
    while True:
        port = random.randrange(10000, 32768)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def find_btcd() -> str:
    path = os.environ.get("PATH", "")
    go = shutil.which("go")
    if go:
        path += os.pathsep + subprocess.check_output([go, "env", "GOPATH"], text=True).strip() + "/bin"
    return shutil.which("btcd", path=path) or pytest.skip("btcd is not installed")


def find_bitcoind() -> str:
    return os.environ.get("BITCOIND_EXE") or pytest.skip("BITCOIND_EXE names no Bitcoin Core")


@contextmanager
def node(command: list[str], home: Path, rpc: int) -> Iterator[None]:
    """A regtest node whose RPC answers."""
    with subprocess.Popen(
        command,
        env={**os.environ, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            ends = time.monotonic() + 60
            while True:
                try:
                    request = urllib.request.Request(
                        f"http://127.0.0.1:{rpc}",
                        b'{"jsonrpc":"1.0","id":1,"method":"getblockcount","params":[]}',
                        {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()},
                    )
                    urllib.request.urlopen(request, timeout=5).read()
                    break
                except OSError:
                    assert process.poll() is None, "the node has ended"
                    assert time.monotonic() < ends, "the node does not start"
                    time.sleep(0.05)
            yield
        finally:
            process.kill()


def btcd(home: Path, listen: int, rpc: int, v2: bool) -> list[str]:
    options = ["--regtest", "--configfile=/dev/null", "--nodnsseed", "--notls"]
    options += ["--rpcuser=u", "--rpcpass=p", f"--datadir={home}/data", f"--logdir={home}/logs"]
    options += [f"--listen=127.0.0.1:{listen}", f"--rpclisten=127.0.0.1:{rpc}"]
    return [find_btcd(), *options, *(["--v2transport"] if v2 else [])]


def bitcoind(home: Path, listen: int, rpc: int, v2: bool) -> list[str]:
    options = ["-regtest", "-server", "-dnsseed=0", "-discover=0", "-listenonion=0"]
    options += ["-rpcuser=u", "-rpcpassword=p", "-rpcbind=127.0.0.1", "-rpcallowip=127.0.0.1"]
    options += [f"-datadir={home}", f"-bind=127.0.0.1:{listen}", f"-rpcport={rpc}"]
    return [find_bitcoind(), *options, f"-v2transport={int(v2)}"]


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("software", [btcd, bitcoind], ids=["btcd", "bitcoind"])
async def test_a_real_node(software: object, v2: bool, tmp_path: Path) -> None:
    assert callable(software)
    listen, rpc = free_port(), free_port()
    with node(software(tmp_path, listen, rpc, v2), tmp_path, rpc):
        reader, writer = await packetlane.connect(
            "127.0.0.1", listen, "regtest", handshake=True, timeout=10
        )
        assert writer.version == (2 if v2 else 1)
        nonce = os.urandom(8)
        # Past a rekey.
        for _ in range(300):
            writer.send("ping", nonce)
        pongs = 0
        while pongs < 300:
            message_type, payload = await asyncio.wait_for(reader.read(), 20)
            pongs += (message_type, payload) == ("pong", nonce)
        writer.close()
