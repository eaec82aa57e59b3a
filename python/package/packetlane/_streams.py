"""Messages over asyncio: v2, or v1 with peers that speak only v1.

All connections of an event loop share two batches. One call opens the packets that arrived in a
turn of the loop, and computes the keys of its handshakes; one call seals what was sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar, Union, cast

from ._packetlane import (
    V1,
    ClosedUnanswered,
    Engine,
    Error,
    Handshake,
    OpenBatch,
    SealBatch,
    Session,
    Slot,
    V1Decoder,
    encode_v1,
)
from ._types import Buffer, Network

_T = TypeVar("_T")

__all__ = [
    "Closed",
    "Reader",
    "SendBufferFull",
    "Version",
    "Writer",
    "connect",
    "exchange_versions",
    "serve",
]

#: A reader with this much unread stops reading its socket: the bytes of all payloads, plus
#: MESSAGE_COST for each message.
MAX_UNREAD = 4 * 1024 * 1024
#: The memory of a message besides its payload, in bytes: a tuple, two objects, a queue entry.
MESSAGE_COST = 256
#: How much a peer may send before its verack, counted like MAX_UNREAD. Nodes send only a few
#: messages without payloads.
MAX_BEFORE_VERACK = 64 * 1024
#: The initial ``Writer.max_unsent``, in bytes: four of the longest payloads.
MAX_UNSENT = 16 * 1024 * 1024
#: How long a closed connection may take to send its unsent bytes, in seconds.
CLOSE_TIMEOUT = 30.0
PROTOCOL_VERSION = 70016
USER_AGENT = "/packetlane-python:0.1.0/"


class Closed(Error):
    """The connection is closed."""


class SendBufferFull(Error):
    """The peer reads too slowly. This call sent nothing: await ``Writer.drain``."""


def _cost(message: tuple[str, bytes]) -> int:
    return MESSAGE_COST + len(message[1])


@dataclass(frozen=True)
class Version:
    """The contents of our ``version`` message. Its time and nonce are new for each peer."""

    #: The service bits.
    services: int = 0
    #: At most 256 bytes of UTF-8.
    user_agent: str = USER_AGENT
    #: The height of the last block.
    height: int = 0
    #: Whether the peer should announce transactions.
    relay: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.services < 1 << 64:
            raise ValueError(f"services {self.services} do not fit 64 bits")
        if not -1 << 31 <= self.height < 1 << 31:
            raise ValueError(f"height {self.height} does not fit 32 bits")
        if len(self.user_agent.encode()) > 256:
            raise ValueError("the user agent is longer than 256 bytes")

    def encode(self) -> bytes:
        """Encodes the payload for one peer."""
        nobody = bytes(26)
        agent = self.user_agent.encode()
        size = bytes([len(agent)]) if len(agent) < 0xFD else struct.pack("<BH", 0xFD, len(agent))
        return (
            struct.pack("<iQq", PROTOCOL_VERSION, self.services, int(time.time()))
            + nobody
            + nobody
            + os.urandom(8)
            + size
            + agent
            + struct.pack("<i?", self.height, self.relay)
        )


class _Turn:
    """The packets that the connections of one event loop have to open and to seal."""

    _of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turn] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self.engine = Engine()
        self.incoming = OpenBatch()
        self.outgoing = SealBatch()
        self.fed: dict[_Connection, Session] = {}
        #: Handshakes that may wait for their keys.
        self.handshakes: dict[_Connection, Handshake] = {}
        self.pushed: dict[_Connection, list[Slot]] = {}

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Turn:
        turn = cls._of.get(loop)
        if turn is None:
            turn = cls._of[loop] = cls()
        return turn

    def open_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.fed and not self.handshakes:
            loop.call_soon(self.open)

    def feed(self, connection: _Connection, session: Session, data: bytes) -> None:
        self.open_soon(connection.loop)
        self.fed[connection] = session
        try:
            session.feed(self.incoming, data)
        except Error:
            pass  # session.messages raises it again, after the packets before it
        if self.incoming.bytes_used >= OpenBatch.ENOUGH_BYTES:
            self.open()

    def receive(
        self, connection: _Connection, handshake: Handshake, data: bytes
    ) -> Union[Session, V1, None]:
        self.open_soon(connection.loop)
        self.handshakes[connection] = handshake
        return handshake.receive(data, self.incoming)

    def open(self) -> None:
        fed, self.fed = self.fed, {}
        handshakes, self.handshakes = self.handshakes, {}
        self.engine.open(self.incoming)
        for connection, session in fed.items():
            try:
                while messages := session.messages(self.incoming):
                    connection.deliver(messages)
            except Error as error:
                connection.fail(error)
        complete = []
        for connection, handshake in handshakes.items():
            try:
                progress = handshake.take_keys(self.incoming)
            except Error as error:
                connection.fail(error)
                continue
            if connection.advance(handshake, progress):
                complete.append(connection)
        self.incoming.clear()
        # Packets that came with the handshake. They belong to the next turn.
        for connection in complete:
            connection.feed_rest()

    def push(
        self, connection: _Connection, session: Session, message_type: str, payload: Buffer
    ) -> None:
        slot = session.push_message(self.outgoing, message_type, payload)
        if not self.pushed:
            connection.loop.call_soon(self.seal)
        self.pushed.setdefault(connection, []).append(slot)
        connection.pushed_bytes += len(slot)
        if self.outgoing.bytes_used >= SealBatch.ENOUGH_BYTES:
            self.seal()

    def seal(self) -> None:
        pushed, self.pushed = self.pushed, {}
        self.engine.seal(self.outgoing)
        for connection, slots in pushed.items():
            connection.pushed_bytes = 0
            # A copy, because asyncio keeps what the socket does not accept.
            connection.write(self.outgoing.wire_bytes(slots))
        self.outgoing.clear()


class _Connection(asyncio.Protocol):
    """One socket. If ``handshake`` is ``None``, it speaks v1 from the start."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        handshake: Optional[Handshake],
        made: Optional[Callable[[_Connection], None]] = None,
    ) -> None:
        self.loop = loop
        self.turn = _Turn.of(loop)
        self.network = network
        self.handshake = handshake
        self.made = made
        self.session: Optional[Session] = None
        self.v1 = V1Decoder(network)
        self.transport: Optional[asyncio.Transport] = None
        #: Done when messages can be sent.
        self.ready: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        #: Unread messages, and their cost.
        self.unread: deque[tuple[str, bytes]] = deque()
        self.unread_cost = 0
        self.end: Optional[Exception] = None
        self.reading: Optional[asyncio.Future[None]] = None
        self.writable = asyncio.Event()
        self.writable.set()
        #: The payload of the peer's ``version``.
        self.peer_version: Optional[bytes] = None
        #: Bytes pushed in this turn and not sealed yet.
        self.pushed_bytes = 0
        #: Aborts the connection if closing it takes too long.
        self.close_timer: Optional[asyncio.TimerHandle] = None

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop has its own transport class.
        self.transport = cast(asyncio.Transport, transport)
        if self.handshake is None:
            self.ready.set_result(None)
        else:
            self.write(self.handshake.take_output())
        if self.made is not None:
            self.made(self)

    def data_received(self, data: bytes) -> None:
        if self.session is not None:
            self.turn.feed(self, self.session, data)
        elif self.handshake is None:
            self.receive_v1(data)
        else:
            try:
                progress = self.turn.receive(self, self.handshake, data)
            except Error as error:
                self.fail(error)
                return
            if self.advance(self.handshake, progress):
                self.feed_rest()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        # First, because a lost transport must not be aborted.
        self.lost.set_result(None)
        if self.close_timer is not None:
            self.close_timer.cancel()
        if self in self.turn.fed or self in self.turn.handshakes:
            self.turn.open()
        self.turn.pushed.pop(self, None)
        if self.handshake is not None and self.session is None:
            self.fail(self.handshake.closed())
        elif self.v1.buffered or (self.session is not None and self.session.buffered):
            self.fail(Error("the peer closed the connection in the middle of a message"))
        else:
            error = Closed("the connection is closed")
            error.__cause__ = exc
            self.fail(error)
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    # Called by the turn and the two streams.

    def feed_rest(self) -> None:
        """Adds the packets that came with the handshake to the turn."""
        if self.session is not None:
            self.turn.feed(self, self.session, b"")

    def advance(self, handshake: Handshake, progress: Union[Session, V1, None]) -> bool:
        """Sends what the handshake has to send. Returns whether packets came with its last bytes."""
        self.write(handshake.take_output())
        if isinstance(progress, Session):
            self.session = progress
            self.set_ready()
            return progress.needs_turn
        if isinstance(progress, V1):
            self.handshake = None
            self.set_ready()
            self.receive_v1(progress.received)
        return False

    def set_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def receive_v1(self, data: bytes) -> None:
        try:
            while messages := self.v1.receive(data):
                self.deliver(messages)
                data = b""
        except Error as error:
            self.fail(error)

    def deliver(self, messages: list[tuple[str, bytes]]) -> None:
        self.unread.extend(messages)
        self.unread_cost += sum(map(_cost, messages))
        if self.unread_cost > MAX_UNREAD and self.transport is not None:
            self.transport.pause_reading()
        self.wake()

    def take(self) -> tuple[str, bytes]:
        """Takes the first message of ``unread``, which must not be empty."""
        message = self.unread.popleft()
        before = self.unread_cost
        self.unread_cost -= _cost(message)
        if self.unread_cost <= MAX_UNREAD < before and self.transport is not None:
            self.transport.resume_reading()
        return message

    def put_back(self, messages: list[tuple[str, bytes]]) -> None:
        """Puts taken messages back at the front of ``unread``."""
        behind, self.unread = self.unread, deque()
        self.deliver(messages)
        self.unread.extend(behind)

    def fail(self, error: Exception) -> None:
        """Ends the connection with an error, if it has not ended yet."""
        if self.end is None:
            self.end = error
            if not self.ready.done():
                self.ready.set_exception(error)
                self.ready.exception()  # marks it retrieved, in case nothing awaits it
            self.wake()
        if self.transport is not None and not self.lost.done():
            self.transport.abort()

    def close(self) -> None:
        """Closes the connection once all unsent bytes are sent, or after CLOSE_TIMEOUT."""
        if self in self.turn.pushed:
            self.turn.seal()
        if self.transport is None or self.lost.done():
            return
        self.transport.close()
        if self.close_timer is None and self.transport.get_write_buffer_size():
            error = Closed(f"the peer did not read all unsent bytes in {CLOSE_TIMEOUT:g} s")
            self.close_timer = self.loop.call_later(CLOSE_TIMEOUT, self.fail, error)

    def wake(self) -> None:
        if self.reading is not None and not self.reading.done():
            self.reading.set_result(None)

    def write(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)


class Reader:
    """The messages of a peer: ``async for message_type, payload in reader``."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def read(self) -> tuple[str, bytes]:
        """Returns the next message: its type and its payload.

        Raises ``Closed`` after the last message, or the ``Error`` that ended the connection.
        """
        connection = self._connection
        while not connection.unread:
            if connection.end is not None:
                raise connection.end
            if connection.reading is not None:
                raise RuntimeError("another task is already waiting for this reader")
            connection.reading = connection.loop.create_future()
            try:
                await connection.reading
            finally:
                connection.reading = None
        return connection.take()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> tuple[str, bytes]:
        try:
            return await self.read()
        except Closed:
            raise StopAsyncIteration from None


class Writer:
    """Sends messages to a peer."""

    #: ``send`` raises ``SendBufferFull`` while more bytes than this are ``unsent``.
    max_unsent: int

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.max_unsent = MAX_UNSENT

    @property
    def version(self) -> int:
        """The version of the transport: 2, or 1 with a peer that speaks only v1."""
        return 1 if self._connection.session is None else 2

    @property
    def session_id(self) -> Optional[bytes]:
        """The id of the v2 session: the same on both sides unless the connection is intercepted."""
        session = self._connection.session
        return None if session is None else session.id

    @property
    def peer_version(self) -> Optional[bytes]:
        """The payload of the peer's ``version``, after ``exchange_versions`` (``handshake=True``)."""
        return self._connection.peer_version

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Like ``asyncio.Transport.get_extra_info``: ``peername``, ``socket``."""
        transport = self._connection.transport
        return default if transport is None else transport.get_extra_info(name, default)

    @property
    def unsent(self) -> int:
        """Number of sent bytes, on the wire, that the socket has not accepted yet."""
        transport = self._connection.transport
        waiting = 0 if transport is None else transport.get_write_buffer_size()
        return waiting + self._connection.pushed_bytes

    def send(self, message_type: str, payload: Buffer = b"") -> None:
        """Sends a message, together with all others of this turn of the event loop.

        Raises ``SendBufferFull`` if more than ``max_unsent`` bytes are ``unsent``, and ``Closed``
        or the ``Error`` that ended the connection.
        """
        connection = self._connection
        if connection.end is not None:
            raise connection.end
        if self.unsent > self.max_unsent:
            raise SendBufferFull(
                f"{self.unsent} bytes are unsent, the limit is {self.max_unsent}: await drain()"
            )
        if connection.session is None:
            connection.write(encode_v1(connection.network, message_type, payload))
        else:
            connection.turn.push(connection, connection.session, message_type, payload)

    async def drain(self) -> None:
        """Waits until at most 64 KiB are ``unsent``.

        A peer that stops reading can make this wait forever: use ``asyncio.wait_for``.
        """
        await asyncio.sleep(0)
        await self._connection.writable.wait()
        if self._connection.end is not None:
            raise self._connection.end

    def close(self) -> None:
        """Closes the connection once all unsent bytes are sent.

        If the peer does not read them in 30 seconds, the connection is aborted.
        """
        self._connection.close()

    def abort(self) -> None:
        """Closes the connection immediately and discards unsent bytes."""
        self._connection.fail(Closed("the connection was aborted"))

    async def wait_closed(self) -> None:
        """Waits until the connection is closed."""
        await asyncio.shield(self._connection.lost)


async def connect(
    host: str,
    port: int,
    network: Network = "main",
    *,
    v2_only: bool = False,
    handshake: Union[bool, Version] = False,
    timeout: float = 10.0,
    total_timeout: Optional[float] = None,
    dial: Optional[Callable[[str, int], Awaitable[socket.socket]]] = None,
) -> tuple[Reader, Writer]:
    """Connects to a node with v2. If the node may speak only v1, reconnects with v1.

    That is if the node closes the connection, answers with v1, or sends nothing for ``timeout``.
    With ``v2_only`` this raises ``ClosedUnanswered`` instead. ``timeout``, in seconds, limits each
    step: TCP, v2, versions. ``total_timeout`` limits all steps together. With ``handshake``, the
    call also exchanges version messages (``exchange_versions``); a ``Version`` sets the contents of
    ours. ``dial`` opens each TCP connection in place of asyncio, like ``connect`` of a SOCKS5 client.
    """

    async def connected() -> tuple[Reader, Writer]:
        try:
            v2 = Handshake.initiator(network)
            return await _connect(host, port, network, v2, handshake, timeout, dial)
        except ClosedUnanswered:
            if v2_only:
                raise
        return await _connect(host, port, network, None, handshake, timeout, dial)

    if total_timeout is None:
        return await connected()
    text = f"{host} port {port}: not connected in {total_timeout:g} s"
    return await _within(total_timeout, connected(), text)


async def _within(timeout: float, what: Awaitable[_T], text: str) -> _T:
    """Awaits ``what``. After ``timeout`` raises a ``TimeoutError`` with ``text``."""
    try:
        return await asyncio.wait_for(what, timeout)
    except asyncio.TimeoutError:
        raise asyncio.TimeoutError(text) from None


async def _connect(
    host: str,
    port: int,
    network: Network,
    v2: Optional[Handshake],
    handshake: Union[bool, Version],
    timeout: float,
    dial: Optional[Callable[[str, int], Awaitable[socket.socket]]] = None,
) -> tuple[Reader, Writer]:
    loop = asyncio.get_running_loop()

    async def dialled() -> _Connection:
        connection = _Connection(loop, network, v2)
        if dial is None:
            await loop.create_connection(lambda: connection, host, port)
        else:
            await loop.create_connection(lambda: connection, sock=await dial(host, port))
        return connection

    text = f"no TCP connection to {host} port {port} in {timeout:g} s"
    connection = await _within(timeout, dialled(), text)
    reader, writer = Reader(connection), Writer(connection)
    try:
        try:
            text = f"the peer did not finish the v2 handshake in {timeout:g} s"
            await _within(timeout, connection.ready, f"{text}: it may be on another network")
        except asyncio.TimeoutError:
            # As if it had closed: a v1 node may be waiting for the rest of what it takes for a message
            # (btcd, if the length that it reads is below 4 MB: one time in 1,074).
            if v2 is not None and isinstance(v2.closed(), ClosedUnanswered):
                text = f"the peer did not answer in {timeout:g} s: it may speak only v1"
                raise ClosedUnanswered(text) from None
            raise
        if handshake:
            text = f"the peer did not send version and verack in {timeout:g} s"
            await _within(timeout, exchange_versions(reader, writer, _own(handshake)), text)
    except BaseException:
        connection.fail(Closed("the connection attempt was abandoned"))
        raise
    return reader, writer


async def serve(
    callback: Callable[[Reader, Writer], Awaitable[None]],
    host: Optional[str],
    port: int,
    network: Network = "main",
    *,
    handshake: Union[bool, Version] = False,
    timeout: float = 60.0,
) -> asyncio.Server:
    """Accepts v2 and v1 peers and calls ``callback`` for each.

    The connection is closed when the callback returns. With ``handshake``, version messages are
    exchanged before the callback is called, as in ``connect``. ``timeout``, in seconds, limits the v2
    handshake and the exchange of versions, each.
    """
    Handshake.responder(network)  # raises for a wrong network now, not for each peer
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def run(connection: _Connection) -> None:
        reader, writer = Reader(connection), Writer(connection)
        try:
            await asyncio.wait_for(connection.ready, timeout)
            if handshake:
                exchange = exchange_versions(reader, writer, _own(handshake), answer=True)
                await asyncio.wait_for(exchange, timeout)
        except (Error, OSError, asyncio.TimeoutError):
            connection.fail(Closed("the peer did not complete the handshake"))
            return
        try:
            await callback(reader, writer)
        except (Error, OSError):
            # Ignored if the connection has ended; otherwise it is the callback's own error, and is logged.
            if connection.end is None:
                raise
        finally:
            writer.close()

    def made(connection: _Connection) -> None:
        task = loop.create_task(run(connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return await loop.create_server(
        lambda: _Connection(loop, network, Handshake.responder(network), made), host, port
    )


def _own(handshake: Union[bool, Version]) -> Version:
    return handshake if isinstance(handshake, Version) else Version()


async def exchange_versions(
    reader: Reader, writer: Writer, version: Version = Version(), *, answer: bool = False
) -> bytes:
    """Exchanges ``version`` and ``verack``, and sends ``sendaddrv2``.

    Set ``answer`` on the side that accepted the connection. Returns the payload of the peer's
    ``version``. Other messages that arrive in between stay in the reader; more than 64 KiB of them end
    the connection with an ``Error``.
    """
    connection = reader._connection
    others: list[tuple[str, bytes]] = []
    allowed = MAX_BEFORE_VERACK
    if not answer:
        writer.send("version", version.encode())
    theirs: Optional[bytes] = None
    try:
        while True:
            message_type, payload = message = await reader.read()
            if message_type == "version" and theirs is None:
                theirs = connection.peer_version = payload
                if answer:
                    writer.send("version", version.encode())
                writer.send("sendaddrv2")
                writer.send("verack")
            elif message_type == "verack" and theirs is not None:
                return theirs
            else:
                allowed -= _cost(message)
                if allowed < 0:
                    text = f"the peer sent more than {MAX_BEFORE_VERACK} bytes before its verack"
                    error = Error(text)
                    connection.fail(error)
                    raise error
                others.append(message)
    finally:
        connection.put_back(others)
