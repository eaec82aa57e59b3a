"""BIP324, Bitcoin's v2 encrypted transport, in batches.

A ``SealBatch`` or ``OpenBatch`` holds the packets of one turn of an event loop, from any number of
sessions, and an ``Engine`` seals or opens all of them in one call. ``connect`` and ``serve`` do this
over asyncio. ``sha256d`` hashes many messages at once, and ``blocks`` reads block files.
"""

from . import blocks, sha256d
from ._packetlane import (
    V1,
    V1Decoder,
    BackendError,
    BadTag,
    BlockError,
    ClosedUnanswered,
    Engine,
    Error,
    Handshake,
    HandshakeError,
    MessageError,
    OpenBatch,
    OpenError,
    SealBatch,
    SealError,
    Session,
    Slot,
    SlotError,
    decode_message,
    encode_message,
    encode_v1,
)
from ._streams import (
    Closed,
    Reader,
    SendBufferFull,
    Version,
    Writer,
    connect,
    exchange_versions,
    serve,
)
from ._types import Network

__all__ = [
    "V1",
    "V1Decoder",
    "BackendError",
    "BadTag",
    "BlockError",
    "Closed",
    "ClosedUnanswered",
    "Engine",
    "Error",
    "Handshake",
    "HandshakeError",
    "MessageError",
    "Network",
    "OpenBatch",
    "OpenError",
    "Reader",
    "SealBatch",
    "SealError",
    "SendBufferFull",
    "Session",
    "Slot",
    "SlotError",
    "Version",
    "Writer",
    "blocks",
    "connect",
    "decode_message",
    "encode_message",
    "encode_v1",
    "exchange_versions",
    "serve",
    "sha256d",
]
