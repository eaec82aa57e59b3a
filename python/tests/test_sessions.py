"""Handshakes, sessions, batches and their views."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
import threading
import time
import types
import typing
from collections.abc import Callable

import packetlane
import pytest
from packetlane import Engine, Handshake, OpenBatch, SealBatch, Session


def sessions() -> tuple[Session, Session]:
    """Two sides of one session."""
    alice, bob = Handshake.initiator("regtest"), Handshake.responder("regtest")
    assert bob.receive(alice.take_output()) is None
    ours = alice.receive(bob.take_output())
    theirs = bob.receive(alice.take_output())
    assert isinstance(ours, Session) and isinstance(theirs, Session)
    return ours, theirs


def sealed(session: Session, *contents: bytes) -> bytes:
    batch = SealBatch()
    slot = session.push_many(batch, list(contents))
    assert slot is not None
    Engine().seal(batch)
    return bytes(batch.wire(slot))


def opened(session: Session, wire: bytes) -> OpenBatch:
    batch = OpenBatch()
    session.feed(batch, wire)
    Engine().open(batch)
    return batch


@pytest.mark.parametrize("size", [0, 1, 61, 1024, 100_000])
def test_round_trip_past_rekeys(size: int) -> None:
    alice, bob = sessions()
    assert alice.id == bob.id and len(alice.id) == 32
    contents = [os.urandom(size) for _ in range(500 if size < 2000 else 5)]
    assert bob.packets(opened(bob, sealed(alice, *contents))) == contents
    assert alice.packets(opened(alice, sealed(bob, *contents))) == contents


def test_any_buffer_is_taken() -> None:
    alice, bob = sessions()
    batch = SealBatch()
    contents: list[bytes | bytearray | memoryview] = [b"bytes", bytearray(b"bytearray"), memoryview(b"_view")[1:]]
    slots = [alice.push(batch, one) for one in contents]
    many = alice.push_many(batch, iter(contents))
    assert many is not None
    joined = slots[0].join(slots[1])
    assert joined is not None and len(joined) == len(slots[0]) + len(slots[1])
    assert slots[0].join(slots[2]) is None
    Engine().seal(batch)
    wire = bytearray(batch.wire_bytes([*slots, many]))
    received = OpenBatch()
    # In pieces, as from a socket.
    for at in range(0, len(wire), 7):
        bob.feed(received, memoryview(wire)[at : at + 7])
    Engine().open(received)
    assert bob.packets(received) == [bytes(one) for one in [*contents, *contents]]


def test_nothing_is_pushed_if_one_is_refused() -> None:
    alice, bob = sessions()
    batch = SealBatch()
    with pytest.raises(TypeError):
        alice.push_many(batch, [b"one", "two"])  # type: ignore[list-item]
    with pytest.raises(packetlane.SealError, match="do not fit a packet"):
        alice.push_many(batch, [b"one", bytes(1 << 24)])
    assert len(batch) == 0 and alice.push_many(batch, []) is None
    assert bob.packets(opened(bob, sealed(alice, b"fine"))) == [b"fine"]


#: Unknown short ids, empty contents, a truncated type, one that is not ASCII, and one not padded with zeros.
NO_MESSAGES = [
    b"\x26",
    b"\x7f no such type",
    b"\xff",
    b"",
    b"\0ping",
    b"\0p\xffng" + bytes(8),
    b"\0ping\0x" + bytes(6),
]


def test_messages_and_decoys() -> None:
    alice, bob = sessions()
    batch = SealBatch()
    slots = [
        alice.push_message(batch, "ping", b"12345678"),
        alice.push(batch, b"noise", decoy=True),
        *(alice.push(batch, contents) for contents in NO_MESSAGES),
        alice.push_message(batch, "sendaddrv2"),
    ]
    Engine().seal(batch)
    received = opened(bob, batch.wire_bytes(slots))
    assert bob.messages(received) == [("ping", b"12345678"), ("sendaddrv2", b"")]
    assert bob.messages(received) == [] and bob.decoys == 1 and bob.ignored == len(NO_MESSAGES)
    with pytest.raises(packetlane.MessageError, match="the maximum is 12"):
        alice.push_message(batch, "a very long type")
    assert packetlane.decode_message(packetlane.encode_message("tx", b"t")) == ("tx", b"t")
    with pytest.raises(packetlane.MessageError, match="short id 255"):
        packetlane.decode_message(b"\xff")


def test_a_forged_packet_ends_the_session_and_no_other() -> None:
    (alice, bob), (carol, dave) = sessions(), sessions()
    wire = bytearray(sealed(alice, b"one", b"two", b"three"))
    wire[23 + 10] ^= 1  # in the second packet
    batch = OpenBatch()
    bob.feed(batch, wire)
    dave.feed(batch, sealed(carol, b"fine"))
    Engine().open(batch)
    assert bob.packets(batch) == [b"one"]
    with pytest.raises(packetlane.BadTag, match="packet 2 after rekey 0"):
        bob.packets(batch)
    assert dave.packets(batch) == [b"fine"]
    with pytest.raises(packetlane.BadTag):
        bob.feed(OpenBatch(), b"more")
    assert issubclass(packetlane.BadTag, packetlane.OpenError)
    assert issubclass(packetlane.OpenError, packetlane.Error)


def test_truncated_and_wrong_lengths() -> None:
    alice, bob = sessions()
    wire = sealed(alice, b"one", b"two")
    assert bob.packets(opened(bob, wire[:-1])) == [b"one"]
    assert bob.buffered == 22
    assert bob.packets(opened(bob, wire[-1:])) == [b"two"]
    bob.set_receive_limit(100)
    with pytest.raises(packetlane.OpenError, match="the receive limit is 100"):
        bob.feed(OpenBatch(), sealed(alice, bytes(101)))
    alice, bob = sessions()
    wire = sealed(alice, b"one")
    with pytest.raises(packetlane.OpenError, match=f"announced a packet of {0xFFFFFF ^ 3} bytes"):
        bob.feed(OpenBatch(), bytes(byte ^ 0xFF for byte in wire))


def test_out_of_turn() -> None:
    alice, bob = sessions()
    batch, received = SealBatch(), OpenBatch()
    slot = alice.push(batch, b"x" * 100)
    with pytest.raises(packetlane.SlotError, match="call engine.seal"):
        batch.wire(slot)
    Engine().seal(batch)
    bob.feed(received, batch.wire(slot))
    with pytest.raises(packetlane.OpenError, match="call engine.open"):
        bob.packets(received)
    with pytest.raises(packetlane.OpenError, match=r"not in this batch: .* before batch\.clear\(\)"):
        bob.packets(OpenBatch())
    Engine().open(received)
    bob.defer(received)
    received.clear()
    assert bob.needs_turn and bob.buffered == 100
    bob.feed(received, b"")
    Engine().open(received)
    assert bob.packets(received) == [b"x" * 100]
    batch.clear()
    with pytest.raises(packetlane.SlotError, match="cleared"):
        batch.wire(slot)
    with pytest.raises(TypeError):
        Engine().seal(OpenBatch())  # type: ignore[arg-type]


def test_a_batch_does_not_change_behind_its_views() -> None:
    alice, bob = sessions()
    batch = SealBatch()
    slot = alice.push(batch, b"hello")
    Engine().seal(batch)
    view = batch.wire(slot)
    assert view.readonly and len(view) == len(slot) == 25
    before = bytes(view)
    changes: list[Callable[[], object]] = [
        batch.clear,
        lambda: alice.push(batch, b"more"),
        lambda: alice.push_many(batch, [b"more"]),
        lambda: Engine().seal(batch),
    ]
    for change in changes:
        with pytest.raises(BufferError, match="1 live memoryview"):
            change()
    # A slice of a view is a view too, and outlives it.
    part = view[1:3]
    exporter = view.obj
    view.release()
    with pytest.raises(BufferError):
        batch.clear()
    assert bytes(part) == before[1:3]
    part.release()
    assert bytes(memoryview(exporter)) == before
    with pytest.raises((TypeError, BufferError)):
        io.BytesIO(b"x").readinto(exporter)
    batch.clear()
    with pytest.raises(BufferError, match="has changed"):
        memoryview(exporter)


def test_views_of_received_packets() -> None:
    alice, bob = sessions()
    received = opened(bob, sealed(alice, b"one", b"two"))
    views = bob.views(received)
    assert views == [b"one", b"two"]
    with pytest.raises(BufferError, match="2 live memoryview"):
        received.clear()
    with pytest.raises(BufferError):
        bob.feed(received, b"more")
    with pytest.raises(TypeError):
        views[0][0] = 1
    # A view keeps its batch alive.
    del received
    gc.collect()
    assert bytes(views[1]) == b"two"
    # The batch can change again once all views are gone.
    received = opened(bob, sealed(alice, b"three"))
    views = bob.views(received)
    del views
    gc.collect()
    received.clear()


def test_handshake() -> None:
    networks, magic = typing.get_args(packetlane.Network)
    assert magic is bytes
    for network in typing.get_args(networks):
        Handshake.initiator(network)
    Handshake.initiator(b"abcd")
    with pytest.raises(ValueError, match='unknown network "moon", expected one of main,'):
        Handshake.initiator("moon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="4 bytes, not 3"):
        Handshake.initiator(b"abc")
    with pytest.raises(ValueError, match="a magic of zeros"):
        Handshake.initiator(bytes(4))
    with pytest.raises(packetlane.HandshakeError, match="4096 bytes of garbage"):
        Handshake.initiator(garbage=bytes(4096))
    alice = Handshake.initiator(garbage=b"", decoys=[b"a", b"b"], engine=Engine("portable"))
    assert len(alice.take_output()) == 64
    assert isinstance(alice.closed(), packetlane.ClosedUnanswered)
    with pytest.raises(packetlane.HandshakeError, match="no garbage terminator"):
        alice.receive(bytes(64 + 4111))
    with pytest.raises(packetlane.HandshakeError, match="already ended"):
        alice.receive(b"more")
    with pytest.raises(packetlane.BackendError, match="no backend"):
        Engine("abacus")


def test_v1_is_recognised() -> None:
    version = packetlane.encode_v1("regtest", "version", b"payload")
    bob = Handshake.responder("regtest")
    assert bob.receive(version[:15]) is None
    v1 = bob.receive(version[15:])
    assert isinstance(v1, packetlane.V1) and v1.received == version
    with pytest.raises(packetlane.HandshakeError, match="v1 on another network"):
        Handshake.responder("main").receive(version + bytes(64))


def test_v1_messages() -> None:
    ping = packetlane.encode_v1("regtest", "ping", b"12345678")
    damaged, malformed = bytearray(ping), bytearray(ping)
    damaged[-1] ^= 1
    malformed[5] = 0xFF
    decoder = packetlane.V1Decoder("regtest")
    wire = ping + damaged + malformed + ping[:-1]
    assert decoder.receive(wire) == [("ping", b"12345678")]
    assert decoder.ignored == 2 and decoder.buffered == len(ping) - 1
    main = packetlane.encode_v1("main", "ping")
    # An error comes after the messages before it, and persists.
    assert decoder.receive(ping[-1:] + main) == [("ping", b"12345678")]
    for data in (b"", ping):
        with pytest.raises(packetlane.MessageError, match="the peer is on main"):
            decoder.receive(data)
    assert decoder.buffered == 0
    too_long = ping[:16] + (4_000_001).to_bytes(4, "little")
    with pytest.raises(packetlane.MessageError, match="the limit is 4000000"):
        packetlane.V1Decoder("regtest").receive(too_long)


def test_a_long_message_in_small_pieces_takes_linear_time() -> None:
    """In v1 and v2: earlier bytes are not processed again for each piece."""
    payload, pieces = bytes(4_000_000), 5_000

    def seconds(receive: Callable[[bytes], object], wire: bytes) -> float:
        receive(wire[:-pieces])
        begun = time.perf_counter()
        for at in range(len(wire) - pieces, len(wire)):
            receive(wire[at : at + 1])
        return time.perf_counter() - begun

    decoder, received = packetlane.V1Decoder("regtest"), []
    v1 = packetlane.encode_v1("regtest", "block", payload)
    # Copying the earlier bytes would take 0.5 ms per piece, 2.5 s in total.
    assert seconds(lambda data: received.extend(decoder.receive(data)), v1) < 1
    assert received == [("block", payload)]
    alice, bob = sessions()
    batch = OpenBatch()
    v2 = sealed(alice, packetlane.encode_message("block", payload))
    assert seconds(lambda data: bob.feed(batch, data), v2) < 1
    Engine().open(batch)
    assert bob.messages(batch) == [("block", payload)]


def test_types_that_a_peer_invents_are_not_interned() -> None:
    """CPython 3.12 and later never free an interned string."""
    alice, bob = sessions()
    decoder = packetlane.V1Decoder("regtest")
    for kind in ("ping", "version", "wtxidrelay", "invented1"):
        by_v2 = bob.messages(opened(bob, sealed(alice, packetlane.encode_message(kind))))
        by_v1 = decoder.receive(packetlane.encode_v1("regtest", kind))
        for (name, _), in (by_v2, by_v1):
            assert name == kind
            # A new object with the same text: only an interned string is the same object.
            interned = sys.intern("".join(list(kind))) is name
            assert interned is (kind != "invented1")


def test_an_empty_message_type_is_refused() -> None:
    alice, _ = sessions()
    batch = SealBatch()
    refused: list[Callable[[], object]] = [
        lambda: alice.push_message(batch, ""),
        lambda: packetlane.encode_message(""),
        lambda: packetlane.encode_v1("regtest", ""),
    ]
    for call in refused:
        with pytest.raises(packetlane.MessageError, match="the message type is empty, expected 1 to 12"):
            call()
    assert len(batch) == 0


@pytest.mark.parametrize("name", ["packetlane", "packetlane.blocks", "packetlane.sha256d", "packetlane.lab"])
def test_type_hints_are_there_at_run_time(name: str) -> None:
    if name == "packetlane.lab":
        pytest.importorskip("pandas", reason="NOT RUN: pandas is not installed")
    module = importlib.import_module(name)
    seen = 0
    for public in module.__all__:
        value = getattr(module, public)
        methods = vars(value).values() if isinstance(value, type) else ()
        for function in (value, *methods):
            if isinstance(function, types.FunctionType) and "return" in function.__annotations__:
                assert "return" in typing.get_type_hints(function)
                seen += 1
    assert seen > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT RUN: this system has no fork")
def test_a_forked_process_is_refused() -> None:
    alice, bob = sessions()
    begun = Handshake.initiator("regtest")
    batch, received = SealBatch(), OpenBatch()
    refused: list[Callable[[], object]] = [
        lambda: alice.push(batch, b"one"),
        lambda: alice.push_many(batch, [b"one"]),
        lambda: alice.push_message(batch, "ping"),
        lambda: alice.feed(received, b""),
        lambda: alice.packets(received),
        lambda: alice.views(received),
        lambda: alice.messages(received),
        lambda: alice.defer(received),
        lambda: begun.take_output(),
        lambda: begun.receive(b"x"),
    ]
    child = os.fork()
    if child == 0:
        texts = set()
        for call in refused:
            try:
                call()
            except packetlane.Error as error:
                texts.add(str(error))
        expected = f"belongs to process {os.getppid()}, but this is process {os.getpid()}: after a fork"
        os._exit(len(texts) == 1 and expected in texts.pop() and len(batch) == 0)
    # Only the parent continues.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert bob.packets(opened(bob, sealed(alice, b"parent"))) == [b"parent"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT RUN: this system has no fork")
def test_a_forked_process_uses_other_keys() -> None:
    # Keys are computed ahead, and some are left.
    seen = {Handshake.initiator("regtest").take_output()[:64] for _ in range(70)}
    assert len(seen) == 70
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for _ in range(40):
            os.write(writing, Handshake.initiator("regtest").take_output()[:64])
        os._exit(0)
    seen |= {Handshake.initiator("regtest").take_output()[:64] for _ in range(40)}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    theirs = os.read(reading, 40 * 64)
    seen |= {theirs[at : at + 64] for at in range(0, len(theirs), 64)}
    assert len(seen) == 150


def test_handshakes_in_a_batch() -> None:
    engine, batch = Engine(), OpenBatch()
    pairs = [(Handshake.initiator("regtest"), Handshake.responder("regtest")) for _ in range(9)]
    for initiator, responder in pairs:
        assert responder.receive(initiator.take_output(), batch) is None
        with pytest.raises(packetlane.HandshakeError, match="not been opened"):
            responder.take_keys(batch)
    engine.open(batch)
    for initiator, responder in pairs:
        assert responder.take_keys(batch) is None
    batch.clear()
    for initiator, responder in pairs:
        assert initiator.receive(responder.take_output(), batch) is None
    engine.open(batch)
    for initiator, responder in pairs:
        here = initiator.take_keys(batch)
        there = responder.receive(initiator.take_output())
        assert isinstance(here, Session) and isinstance(there, Session)
        assert here.id == there.id
    batch.clear()


def test_threads() -> None:
    """Each thread has its own sessions and batches; they share one engine."""
    engine = Engine()
    failures = []

    def run() -> None:
        try:
            alice, bob = sessions()
            batch, received = SealBatch(), OpenBatch()
            for turn in range(50):
                contents = [os.urandom(61 + turn)] * 200
                slot = alice.push_many(batch, contents)
                assert slot is not None
                engine.seal(batch)
                with batch.wire(slot) as wire:
                    bob.feed(received, wire)
                engine.open(received)
                assert bob.packets(received) == contents
                batch.clear()
                received.clear()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def refuses(run: Callable[[], object], touch: Callable[[], object]) -> bool:
    """Whether ``touch`` is refused while another thread is in ``run``."""
    refused = False
    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        try:
            touch()
        except RuntimeError as error:
            assert "borrowed" in str(error)
            refused = True
        except packetlane.SlotError:
            pass
    thread.join()
    return refused


# On a busy machine an attempt may see no overlap.
ATTEMPTS = 10


def test_one_batch_in_two_threads() -> None:
    """Sealing and opening release the GIL. Another thread that uses the batch then gets an error."""
    alice, bob = sessions()
    batch, received = SealBatch(), OpenBatch()
    # Short packets, so that the engine seals them and not the push.
    contents = [bytes(700)] * 40_000
    sealing_refuses = opening_refuses = False
    for _ in range(ATTEMPTS):
        batch.clear()
        received.clear()
        slot = alice.push_many(batch, contents)
        assert slot is not None
        sealing_refuses |= refuses(lambda: Engine().seal(batch), lambda: batch.wire(slot).release())
        with batch.wire(slot) as wire:
            bob.feed(received, wire)
        opening_refuses |= refuses(lambda: Engine().open(received), lambda: len(received))
        assert bob.packets(received) == contents
        if sealing_refuses and opening_refuses:
            return
    raise AssertionError("no call was refused")


def test_long_packets_in_two_threads() -> None:
    """A push that seals releases the GIL too."""
    alice, bob = sessions()
    batch, received = SealBatch(), OpenBatch()
    contents = [bytes(3_000_000)] * 8
    for _ in range(ATTEMPTS):
        batch.clear()
        received.clear()
        slots: list[packetlane.Slot | None] = []
        pushing_refuses = refuses(
            lambda: slots.append(alice.push_many(batch, contents)), lambda: alice.id
        )
        Engine().seal(batch)
        (slot,) = slots
        assert slot is not None
        with batch.wire(slot) as wire:
            for start in range(0, len(wire), 800_000):
                bob.feed(received, wire[start : start + 800_000])
        Engine().open(received)
        assert bob.packets(received) == contents
        if pushing_refuses:
            return
    raise AssertionError("no call was refused")


def test_sha256d() -> None:
    from hashlib import sha256

    from packetlane import sha256d

    messages = [os.urandom(n) for n in range(200)]
    expected = [sha256(sha256(one).digest()).digest() for one in messages]
    assert sha256d.many(messages) == expected
    assert sha256d.many(map(bytearray, messages)) == expected
    assert sha256d.many([]) == []
    assert sha256d.merkle_root([]) == (bytes(32), False)
    assert sha256d.merkle_root(expected[:1]) == (expected[0], False)
    pair = sha256d.many([expected[0] + expected[1]])[0]
    assert sha256d.merkle_root(expected[:2]) == (pair, False)
    assert sha256d.merkle_root([expected[0]] * 2).mutated
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        sha256d.merkle_root([b"abc"])


def test_lab(tmp_path: object) -> None:
    pandas = pytest.importorskip("pandas")
    import json
    from pathlib import Path

    from packetlane import lab

    row = {
        "experiment": "bip324.packet",
        "case": "op=seal bytes=61 batch=64",
        "implementation": "packetlane",
        "median": 47.5,
    }
    path = Path(str(tmp_path)) / "report.json"
    path.write_text(json.dumps({"schema": 1, "machine": {"cpu": "x"}, "rows": [row]}))
    frame = lab.read(path)
    assert isinstance(frame, pandas.DataFrame) and frame.attrs["machine"] == {"cpu": "x"}
    assert frame["case.bytes"][0] == 61 and frame["case.op"][0] == "seal"
    assert lab.read(path, "ratios").empty
    path.write_text(json.dumps({"schema": 2, "machine": {}}))
    with pytest.raises(ValueError, match="report.json: schema 2, expected 1"):
        lab.read(path)
    with pytest.raises(ValueError, match="unknown table 'lines', expected rows, ratios or published"):
        path.write_text(json.dumps({"schema": 1, "machine": {}}))
        lab.read(path, "lines")  # type: ignore[arg-type]
    # The output of packetlane connect --json also has schema 1.
    for other in ('{"schema": 1, "address": "127.0.0.1:8333"}', "[1]", "no JSON", ""):
        path.write_text(other)
        with pytest.raises(ValueError, match="report.json: not a report of packetlane lab --json"):
            lab.read(path)
