"""Nodes that answer ``getaddr``, in a separate process.

``python listeners.py COUNT V1 NETWORK`` prints COUNT ports on one line and serves until its
standard input ends. The first V1 of them speak only v1.
"""

import asyncio
import sys
from typing import cast

import packetlane


def addresses() -> bytes:
    """An ``addr`` message of two."""
    one = bytes(4) + (1).to_bytes(8, "little") + bytes(10) + b"\xff\xff\x7f\0\0\x01" + b"\x20\x8d"
    return b"\x02" + 2 * one


def addresses_v2() -> bytes:
    """An ``addrv2`` message of two: IPv4 and Tor."""
    ipv4 = bytes(4) + b"\x01" + b"\x01" + b"\x04\x7f\0\0\x01" + b"\x20\x8d"
    tor = bytes(4) + b"\xfd\x09\x04" + b"\x04" + b"\x20" + bytes(range(32)) + b"\x20\x8d"
    return b"\x02" + ipv4 + tor


async def node(reader: packetlane.Reader, writer: packetlane.Writer) -> None:
    v2 = False
    async for message_type, payload in reader:
        if message_type == "sendaddrv2":
            v2 = True
        elif message_type == "ping":
            writer.send("pong", payload)
        elif message_type == "getaddr":
            if v2:
                writer.send("addrv2", addresses_v2())
            else:
                writer.send("addr", addresses())


async def v1_node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, network: packetlane.Network) -> None:
    """A node that speaks only v1: it closes the connection on anything else."""
    decoder = packetlane.V1Decoder(network)
    while data := await reader.read(65536):
        try:
            for message_type, _ in decoder.receive(data):
                if message_type == "version":
                    version = packetlane.encode_v1(network, "version", bytes(86))
                    writer.write(version + packetlane.encode_v1(network, "verack"))
                elif message_type == "getaddr":
                    writer.write(packetlane.encode_v1(network, "addr", addresses()))
        except packetlane.MessageError:
            break
    writer.close()


async def main(count: int, v1: int, network: packetlane.Network) -> None:
    servers = []
    for number in range(count):
        if number < v1:
            server = await asyncio.start_server(
                lambda reader, writer: v1_node(reader, writer, network), "127.0.0.1", 0
            )
        else:
            server = await packetlane.serve(node, "127.0.0.1", 0, network, handshake=True)
        servers.append(server)
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), cast(packetlane.Network, sys.argv[3])))
