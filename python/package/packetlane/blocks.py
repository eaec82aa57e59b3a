"""Bitcoin Core's block files, and verification of blocks against their headers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Union

from ._packetlane import BlockError, BlockSummary, Scanner, Verifier, encode_v1
from ._types import Network

__all__ = ["BlockError", "BlockSummary", "Scanner", "Verifier", "scan"]

_PIECE = 1 << 20


def scan(
    path: Union[str, os.PathLike[str]], network: Network = "main"
) -> Iterator[tuple[int, Union[bytes, BlockError]]]:
    """Yields the blocks of a block file (``blk00000.dat``), each as its offset and its bytes.

    The blocks are not verified; use ``Verifier``. Bytes that are not a block give an offset and a
    ``BlockError``, and the scan continues after them. If the file does not begin with the network's
    magic, it is decoded with the key in ``xor.dat`` next to it, if that exists. Memory is bounded by
    the longest block. Raises ``ValueError`` for a malformed key, and ``OSError``.
    """
    key = None
    with open(path, "rb") as file:
        piece = file.read(_PIECE)
        if not piece.startswith(encode_v1(network, "block")[:4]):
            try:
                with open(os.path.join(os.path.dirname(path), "xor.dat"), "rb") as keys:
                    key = keys.read(9)
            except FileNotFoundError:
                pass  # Bitcoin Core before version 28
        scanner = Scanner(network, key=key)
        while piece:
            yield from scanner.feed(piece)
            piece = file.read(_PIECE)
        yield from scanner.finish()
