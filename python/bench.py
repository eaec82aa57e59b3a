#!/usr/bin/env python3
"""The cost of packets and handshakes in Python, compared with other packages.

    python bench.py [--test-framework PATH | --fetch]

Needs ``packetlane`` installed, and ``cryptography`` and ``coincurve`` for their rows. PATH is the
folder that contains Bitcoin Core's ``test_framework``; ``--fetch`` extracts it from the PyPI wheel
``warnet`` 1.1.20. Prints NOT MEASURED for missing packages.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Optional

import packetlane
from packetlane import Engine, Handshake, OpenBatch, SealBatch, Session
from packetlane import _streams as streams

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "examples"))
crawler = importlib.import_module("crawler")

PACKETS = 1024
BYTES = 61
LISTENERS = 100
NETWORK: Final = "regtest"


def time_of(run: Callable[[], object], samples: int, per: int) -> float:
    """The median CPU time of this thread, in nanoseconds per item; a run handles ``per`` items."""
    run()
    times = []
    for _ in range(samples):
        begun = time.thread_time_ns()
        run()
        times.append(time.thread_time_ns() - begun)
    return statistics.median(times) / per


def row(text: str, nanoseconds: float, beside: Optional[float] = None) -> None:
    times = f"   {nanoseconds / beside:7.1f} times ours" if beside else ""
    print(f"  {text:<64}{nanoseconds:12,.0f} ns{times}")


# (a) Packets.


def ours() -> float:
    alice, bob = sessions()
    engine, outgoing, incoming = Engine(), SealBatch(), OpenBatch()
    contents = [bytes([n % 256]) * BYTES for n in range(PACKETS)]
    parts: dict[str, list[int]] = {}

    def both(take: Callable[[OpenBatch], list[Any]] = bob.packets) -> None:
        marks = [time.thread_time_ns()]

        def mark() -> None:
            marks.append(time.thread_time_ns())

        slot = alice.push_many(outgoing, contents)
        assert slot is not None
        mark()
        engine.seal(outgoing)
        mark()
        with outgoing.wire(slot) as wire:
            bob.feed(incoming, wire)
        mark()
        engine.open(incoming)
        mark()
        packets = take(incoming)
        mark()
        if packets != contents:
            raise RuntimeError("the opened packets differ")
        del packets
        outgoing.clear()
        incoming.clear()
        names = ["push_many", "engine.seal", "feed", "engine.open", take.__name__]
        for name, before, after in zip(names, marks, marks[1:]):
            parts.setdefault(name, []).append(after - before)

    for _ in range(200):
        both()
    means = {name: statistics.median(times) / PACKETS for name, times in parts.items()}
    total = sum(means.values())
    row(f"packetlane ({engine.backend}), one batch", total)
    print("   ", ", ".join(f"{name} {ns:.0f}" for name, ns in means.items()))
    parts.clear()
    for _ in range(200):
        both(bob.views)
    views = sum(statistics.median(times) / PACKETS for times in parts.values())
    row("packetlane, contents as memoryviews", views, total)

    def lone() -> None:
        for _ in range(100):
            slot = alice.push(outgoing, contents[0])
            engine.seal(outgoing)
            with outgoing.wire(slot) as wire:
                bob.feed(incoming, wire)
            engine.open(incoming)
            bob.packets(incoming)
            outgoing.clear()
            incoming.clear()

    row("packetlane, one packet per batch", time_of(lone, 50, 100), total)
    return total


def bare_aead(total: float) -> None:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    except ImportError:
        print("  NOT MEASURED: cryptography is not installed")
        return
    cipher = ChaCha20Poly1305(bytes(32))
    contents = [bytes(1 + BYTES)] * PACKETS
    nonces = [n.to_bytes(12, "little") for n in range(PACKETS)]

    def both() -> None:
        sealed = [cipher.encrypt(nonce, one, None) for nonce, one in zip(nonces, contents)]
        for nonce, one in zip(nonces, sealed):
            cipher.decrypt(nonce, one, None)

    row("cryptography, only ChaCha20Poly1305, one call per packet", time_of(both, 30, PACKETS), total)


def core_packets(total: float, what: str) -> None:
    from test_framework.v2_p2p import EncryptedP2PState

    ends = [EncryptedP2PState(initiating=initiating, net=NETWORK) for initiating in (True, False)]
    for end in ends:
        end.initialize_v2_transport(bytes(32))
    alice, bob = ends

    def both() -> None:
        for _ in range(64):
            length, contents = bob.v2_receive_packet(alice.v2_enc_packet(bytes(BYTES)))
            assert len(contents) == BYTES

    row(what, time_of(both, 5, 64), total)


def sessions() -> tuple[Session, Session]:
    alice, bob = Handshake.initiator(NETWORK), Handshake.responder(NETWORK)
    bob.receive(alice.take_output())
    ours = alice.receive(bob.take_output())
    theirs = bob.receive(alice.take_output())
    assert isinstance(ours, Session) and isinstance(theirs, Session)
    return ours, theirs


# (b) Handshakes.


class Rival:
    """A connection around the state machine of Bitcoin Core's test framework."""

    version = 2

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: Any):
        self.reader, self.writer, self.state = reader, writer, state
        self.data = b""

    @classmethod
    async def connect(
        cls, host: str, port: int, network: str, *, handshake: bool, timeout: float
    ) -> tuple[Rival, Rival]:
        return await asyncio.wait_for(cls.dial(host, port, network), timeout)

    @classmethod
    async def dial(cls, host: str, port: int, network: str) -> tuple[Rival, Rival]:
        reader, writer = await asyncio.open_connection(host, port)
        state = State(initiating=True, net=network)
        self = cls(reader, writer, state)
        writer.write(state.initiate_v2_handshake())
        while len(self.data) < 64:
            await self.more()
        used, answer = state.complete_handshake(BytesIO(self.data))
        self.data = self.data[used:]
        writer.write(answer)
        while True:
            used, fine = state.authenticate_handshake(self.data)
            if not fine:
                raise packetlane.Error("the handshake failed")
            self.data = self.data[used:]
            if state.tried_v2_handshake:
                break
            await self.more()
        self.send("version", packetlane.Version().encode())
        async for message_type, _ in self:
            if message_type == "version":
                self.send("sendaddrv2")
                self.send("verack")
            elif message_type == "verack":
                break
        return self, self

    async def more(self) -> None:
        data = await self.reader.read(65536)
        if not data:
            raise packetlane.Closed("the connection is closed")
        self.data += data

    def send(self, message_type: str, payload: bytes = b"") -> None:
        contents = packetlane.encode_message(message_type, payload)
        self.writer.write(self.state.v2_enc_packet(contents))

    def __aiter__(self) -> Rival:
        return self

    async def __anext__(self) -> tuple[str, bytes]:
        while True:
            used, contents = self.state.v2_receive_packet(self.data)
            if used < 0:
                raise packetlane.Error("a tag is wrong")
            self.data = self.data[used:]
            if contents is not None:
                return packetlane.decode_message(contents)
            if used == 0:
                await self.more()

    def close(self) -> None:
        self.writer.close()


State: Any = None


def use_fast_parts() -> None:
    """Replaces parts of that state machine by calls of coincurve and cryptography: multiplication on the
    curve, ChaCha20-Poly1305, ChaCha20. ElligatorSwift and HKDF stay in Python."""
    global State
    import random

    import coincurve
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from test_framework import v2_p2p
    from test_framework.crypto import bip324_cipher, chacha20, ellswift
    from test_framework.crypto.secp256k1 import FE, GE

    def encrypt(key: bytes, nonce: bytes, aad: bytes, text: bytes) -> Any:
        return ChaCha20Poly1305(key).encrypt(nonce, text, aad)

    def decrypt(key: bytes, nonce: bytes, aad: bytes, text: bytes) -> Any:
        try:
            return ChaCha20Poly1305(key).decrypt(nonce, text, aad)
        except InvalidTag:
            return None

    def block(key: bytes, nonce: bytes, counter: int) -> Any:
        whole = counter.to_bytes(4, "little") + nonce
        return Cipher(ChaCha20(key, whole), None).encryptor().update(bytes(64))

    def create() -> tuple[bytes, bytes]:
        secret = random.randrange(1, GE.ORDER).to_bytes(32, "big")
        public = coincurve.PrivateKey(secret).public_key.format()
        u, t = ellswift.xelligatorswift(FE(int.from_bytes(public[1:], "big")))
        return secret, u.to_bytes() + t.to_bytes()

    def exchange(theirs: bytes, secret: bytes) -> Any:
        u, t = (FE(int.from_bytes(half, "big")) for half in (theirs[:32], theirs[32:]))
        public = coincurve.PublicKey(b"\x02" + ellswift.xswiftec(u, t).to_bytes())
        return public.multiply(secret).format()[1:]

    class Fast(v2_p2p.EncryptedP2PState):  # type: ignore[misc]
        found_garbage_terminator: bool

        def authenticate_handshake(self, response: bytes) -> tuple[int, bool]:
            # Finds the garbage terminator with one search, not byte by byte.
            before = 0
            if not self.found_garbage_terminator:
                found = response.find(self.peer["recv_garbage_terminator"], 0, 4095 + 16)
                if found < 0:
                    return 0, len(response) < 4095 + 16
                self.found_garbage_terminator = True
                self.received_garbage = response[:found]
                before = found + 16
            used, fine = super().authenticate_handshake(response[before:])
            return before + used, fine

    # Both must give the same result.
    old, new = ellswift.ellswift_create(), create()
    assert exchange(old[1], new[0]) == ellswift.ellswift_ecdh_xonly(new[1], old[0])
    bip324_cipher.aead_chacha20_poly1305_encrypt = encrypt
    bip324_cipher.aead_chacha20_poly1305_decrypt = decrypt
    chacha20.chacha20_block = block
    v2_p2p.ellswift_create = create
    v2_p2p.ellswift_ecdh_xonly = exchange
    State = Fast


async def connect_v1(
    host: str, port: int, network: packetlane.Network, *, handshake: bool, timeout: float
) -> tuple[packetlane.Reader, packetlane.Writer]:
    return await streams._connect(host, port, network, None, handshake, timeout)


def crawl(ports: list[str], connect: Any, transport: str, rounds: int) -> float:
    """Nanoseconds per visit: wall time, one core."""
    nodes = [f"127.0.0.1:{port}" for port in ports] * rounds
    seen: list[Any] = []
    begun = time.perf_counter_ns()
    asyncio.run(crawler.crawl(nodes, NETWORK, seen.append, 50, 60.0, connect))
    took = time.perf_counter_ns() - begun
    wrong = [one for one in seen if one.error or len(one.known) != 2 or one.transport != transport]
    if wrong or len(seen) != len(nodes):
        raise RuntimeError(f"a visit failed: {wrong[:1]}")
    return took / len(nodes)


def in_memory() -> float:
    """Nanoseconds of one side of a handshake, without sockets."""
    return time_of(lambda: [sessions() for _ in range(100)], 10, 200)


def rival_in_memory() -> float:
    def both() -> None:
        alice, bob = State(initiating=True, net=NETWORK), State(initiating=False, net=NETWORK)
        first = alice.initiate_v2_handshake()
        stream = BytesIO(first)
        _, second = bob.respond_v2_handshake(stream)
        bob.complete_handshake(stream)
        _, third = alice.complete_handshake(BytesIO(second))

    return time_of(both, 9, 2)


def handshakes(framework: bool, fast: bool) -> None:
    global State
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, str(HERE / "tests" / "listeners.py"), str(LISTENERS), "0", NETWORK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as listeners:
        try:
            os.sched_setaffinity(listeners.pid, {cores[-1]})
            os.sched_setaffinity(0, {cores[0]})
            assert listeners.stdout is not None
            ports = listeners.stdout.readline().split()
            crawl(ports, packetlane.connect, "v2", 1)
            ours = min(crawl(ports, packetlane.connect, "v2", 10) for _ in range(3))
            visits("packetlane", ours)
            plain = min(crawl(ports, connect_v1, "v1", 10) for _ in range(3))
            visits("packetlane with v1: no v2 handshake, no encryption", plain, ours)
            side = in_memory()
            print(f"    of a v2 visit: {side / 1000:.0f} us are our side of the v2 handshake (in memory),")
            print(f"    {plain / 1000:.0f} us are asyncio, sockets and messages (a v1 visit)")
            if not framework:
                return
            from test_framework.v2_p2p import EncryptedP2PState

            State = EncryptedP2PState
            visits("Core's test framework, pure Python", crawl(ports, Rival.connect, "v2", 1), ours)
            print(f"    keys, key exchange and first packets in memory: {rival_in_memory() / 1000:.0f} us")
            if fast:
                use_fast_parts()
                fastest = min(crawl(ports, Rival.connect, "v2", 2) for _ in range(3))
                visits("the same with calls of coincurve and cryptography", fastest, ours)
                print(f"    keys, key exchange and first packets in memory: {rival_in_memory() / 1000:.0f} us")
        finally:
            listeners.kill()


def visits(text: str, nanoseconds: float, beside: Optional[float] = None) -> None:
    times = f"   {nanoseconds / beside:7.1f} times ours" if beside else ""
    print(f"  {text:<64}{1e9 / nanoseconds:9,.0f} /s{times}")


def fetch(folder: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, "warnet==1.1.20"], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder, [n for n in files.namelist() if n.startswith("test_framework/")])
    return Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of packets and handshakes in Python.")
    parser.add_argument("--test-framework", type=Path, metavar="PATH")
    parser.add_argument("--fetch", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = fetch(folder) if options.fetch else options.test_framework
        if path is not None:
            sys.path.insert(0, str(path))
        try:
            importlib.import_module("test_framework.v2_p2p")
            framework = True
        except ImportError:
            framework = False
        try:
            importlib.import_module("coincurve")
            importlib.import_module("cryptography")
            fast = True
        except ImportError:
            fast = False
        print(f"CPython {sys.version.split()[0]}; medians of this thread's CPU time per packet")
        print(f"(a) {PACKETS} packets of {BYTES} bytes, sealed and opened")
        total = ours()
        bare_aead(total)
        if framework:
            core_packets(total, "Core's test framework, v2 transport, pure Python")
        else:
            print("  NOT MEASURED: Core's test framework (--test-framework PATH or --fetch)")
        print("(b) crawler visits (TCP, v2, version, getaddr): wall time, one core,")
        print(f"    {LISTENERS} listeners of this package in another process")
        handshakes(framework, fast)
        if framework and not fast:
            print("  NOT MEASURED: coincurve and cryptography are not both installed")


if __name__ == "__main__":
    main()
