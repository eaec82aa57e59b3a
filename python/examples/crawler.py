"""Asks Bitcoin nodes which other nodes they know, over v2, or over v1 if a node speaks only v1.

    python crawler.py --network main 203.0.113.5:8333 [2001:db8::1]:8333 > seen.jsonl
    python crawler.py --nodes nodes.txt --csv > seen.csv

It connects to all nodes of the list, ``--concurrency`` at a time, and prints a line for each.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import csv
import ipaddress
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field

import packetlane

#: Connects to a node: ``packetlane.connect``, or a replacement in a benchmark.
Connect = Callable[..., Awaitable["tuple[packetlane.Reader, packetlane.Writer]"]]


@dataclass
class Node:
    """The result for one node."""

    address: str
    transport: str = ""
    seconds: float = 0.0
    error: str = ""
    known: list[str] = field(default_factory=list)


class Cursor:
    """Reads Bitcoin's serialisation."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("the message is truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def size(self) -> int:
        first = self.take(1)[0]
        return int.from_bytes(self.take(1 << (first - 0xFC)), "little") if first > 0xFC else first


def name(network: int, address: bytes, port: int) -> str:
    """Formats a BIP155 address."""
    if network == 1:
        return f"{ipaddress.IPv4Address(address)}:{port}"
    if network in (2, 6):
        return f"[{ipaddress.IPv6Address(address)}]:{port}"
    if network == 5:
        return f"{base64.b32encode(address).decode().lower().rstrip('=')}.b32.i2p:{port}"
    return f"network-{network}/{address.hex()}:{port}"


def addresses(message_type: str, payload: bytes) -> Iterator[str]:
    """The addresses in an ``addr`` or ``addrv2`` message."""
    cursor = Cursor(payload)
    for _ in range(cursor.size()):
        cursor.take(4)  # last seen
        if message_type == "addr":
            cursor.take(8)  # services
            ip = ipaddress.IPv6Address(cursor.take(16))
            address: bytes = ip.ipv4_mapped.packed if ip.ipv4_mapped else ip.packed
            network = 1 if ip.ipv4_mapped else 2
        else:
            cursor.size()  # services
            network = cursor.take(1)[0]
            address = cursor.take(cursor.size())
        yield name(network, address, int.from_bytes(cursor.take(2), "big"))


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("expected HOST:PORT with a port from 1 to 65535")
    return host.strip("[]"), int(port)


async def visit(address: str, network: str, timeout: float, connect: Connect) -> Node:
    """Asks one node."""
    node = Node(address)
    begun = time.perf_counter()
    try:
        host, port = host_and_port(address)
        reader, writer = await connect(host, port, network, handshake=True, timeout=timeout)
        node.transport = f"v{writer.version}"
        try:
            writer.send("getaddr")
            await asyncio.wait_for(answer(reader, writer, node.known), timeout)
        except asyncio.TimeoutError:
            # A node that knows only itself has announced itself and sends nothing more.
            if not node.known:
                raise asyncio.TimeoutError(f"no answer to getaddr in {timeout:g} s") from None
        finally:
            writer.close()
    except (packetlane.Error, OSError, ValueError, asyncio.TimeoutError) as error:
        node.error = str(error) or type(error).__name__
    node.seconds = round(time.perf_counter() - begun, 3)
    return node


async def answer(
    reader: packetlane.Reader, writer: packetlane.Writer, known: list[str]
) -> None:
    """Waits for the answer to ``getaddr``. A node may first announce only itself."""
    async for message_type, payload in reader:
        if message_type == "ping":
            writer.send("pong", payload)
        elif message_type in ("addr", "addrv2"):
            known.extend(addresses(message_type, payload))
            if len(known) > 1:
                break


async def crawl(
    nodes: list[str],
    network: str,
    seen: Callable[[Node], None],
    concurrency: int = 100,
    timeout: float = 10.0,
    connect: Connect = packetlane.connect,
) -> None:
    """Visits all nodes, ``concurrency`` at a time, and calls ``seen`` for each."""
    waiting = iter(nodes)

    async def work() -> None:
        for address in waiting:
            seen(await visit(address, network, timeout, connect))

    await asyncio.gather(*(work() for _ in range(concurrency)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("node", nargs="*", help="HOST:PORT")
    parser.add_argument("--nodes", type=argparse.FileType(), help="a file of HOST:PORT, one a line")
    networks = ["main", "testnet3", "testnet4", "signet", "regtest"]
    parser.add_argument("--network", default="main", choices=networks)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds per step and node")
    parser.add_argument("--csv", action="store_true", help="CSV instead of JSON lines")
    options = parser.parse_args()
    nodes = options.node + (options.nodes.read().split() if options.nodes else [])
    table = csv.writer(sys.stdout)

    def seen(node: Node) -> None:
        if options.csv:
            table.writerow([*list(asdict(node).values())[:-1], " ".join(node.known)])
        else:
            print(json.dumps(asdict(node)))

    if options.csv:
        table.writerow(asdict(Node("")))
    asyncio.run(crawl(nodes, options.network, seen, options.concurrency, options.timeout))


if __name__ == "__main__":
    main()
