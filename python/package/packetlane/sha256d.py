"""Double SHA-256 of many messages at once.

>>> from packetlane import sha256d
>>> [digest.hex()[:16] for digest in sha256d.many([b"hello", bytearray(b"world")])]
['9595c9df90075148', '63e5c163c81ee9a3']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ._packetlane import sha256d_many, sha256d_merkle_root
from ._types import Buffer

__all__ = ["MerkleRoot", "many", "merkle_root"]


class MerkleRoot(NamedTuple):
    """A Merkle root."""

    root: bytes
    #: Whether the same root also belongs to a shorter list of leaves (CVE-2012-2459).
    mutated: bool


def many(messages: Iterable[Buffer]) -> list[bytes]:
    """The double SHA-256 of each message, in the byte order of SHA-256's output.

    Releases the GIL. ``bytes`` objects are not copied.
    """
    return sha256d_many(messages)


def merkle_root(leaves: Iterable[Buffer]) -> MerkleRoot:
    """Bitcoin's Merkle root of hashes of 32 bytes.

    >>> merkle_root(many([b"one", b"two"])).root == many([b"".join(many([b"one", b"two"]))])[0]
    True
    """
    return MerkleRoot(*sha256d_merkle_root(leaves))
