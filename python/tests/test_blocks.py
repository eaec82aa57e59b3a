"""Block files and the verification of blocks."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import packetlane
import pytest
from packetlane import blocks

#: The genesis block of mainnet.
GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac7"
    "2c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c010100000001000000000000"
    "0000000000000000000000000000000000000000000000000000ffffffff4d04ffff001d0104455468652054696d"
    "65732030332f4a616e2f32303039204368616e63656c6c6f72206f6e206272696e6b206f66207365636f6e642062"
    "61696c6f757420666f722062616e6b73ffffffff0100f2052a01000000434104678afdb0fe5548271967f1a67130"
    "b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b"
    "6bf11d5fac00000000"
)
KEY = bytes(range(1, 9))
FRAME = bytes.fromhex("f9beb4d9") + len(GENESIS).to_bytes(4, "little")


def obfuscated(data: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, cycle(KEY)))


def test_a_block_is_verified() -> None:
    verifier = blocks.Verifier()
    summary = verifier.verify(bytearray(GENESIS))
    assert summary.hash[::-1].hex() == (
        "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"
    )
    assert (summary.transactions, summary.transactions_of_64_bytes) == (1, 0)
    with pytest.raises(packetlane.BlockError, match="Merkle root.*") as caught:
        verifier.verify(GENESIS[:36] + bytes(32) + GENESIS[68:])
    # The error lists all faults: the proof of work is missing too.
    assert "; " in str(caught.value)
    for wrong in (b"", GENESIS[:-1], GENESIS + b"\0"):
        with pytest.raises(packetlane.BlockError):
            verifier.verify(wrong)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "obfuscated"])
def test_a_file_is_scanned(plain: bool, tmp_path: Path) -> None:
    """An obfuscated file, and a plain one that has a key next to it."""
    data = (FRAME + GENESIS) * 2 + b"damage" + FRAME + GENESIS
    path = tmp_path / "blk00000.dat"
    path.write_bytes((data if plain else obfuscated(data)) + bytes(3_000_000))
    (tmp_path / "xor.dat").write_bytes(KEY)
    size = len(FRAME + GENESIS)
    first, second, damage, third = blocks.scan(path)
    assert first == (8, GENESIS) and second == (size + 8, GENESIS)
    assert damage[0] == 2 * size and isinstance(damage[1], packetlane.BlockError)
    assert "6 bytes skipped" in str(damage[1])
    assert third == (2 * size + 6 + 8, GENESIS)
    (tmp_path / "xor.dat").write_bytes(KEY + b"\0")
    if not plain:
        with pytest.raises(ValueError, match="a key has 8 bytes, not 9"):
            list(blocks.scan(path))


def test_pieces_of_a_file_may_be_small() -> None:
    magic = b"abcd"
    data = (magic + FRAME[4:] + GENESIS) * 3
    scanner = blocks.Scanner(magic, key=KEY)
    wire = obfuscated(data[:-1])
    found = [item for at in range(0, len(wire), 7) for item in scanner.feed(wire[at : at + 7])]
    assert found == [(8, GENESIS), (len(data) // 3 + 8, GENESIS)]
    ((offset, cut),) = scanner.finish()
    assert offset == len(data) // 3 * 2 and "the file ends within a block" in str(cut)
