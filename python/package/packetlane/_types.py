"""Argument types, for type checkers and ``typing.get_type_hints``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, Union

if sys.version_info >= (3, 12):
    from collections.abc import Buffer as Buffer
elif TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer
else:
    Buffer = Union[bytes, bytearray, memoryview]

#: A network: its name in node software, or its magic as four bytes.
Network = Union[Literal["main", "testnet3", "testnet4", "signet", "regtest"], bytes]
