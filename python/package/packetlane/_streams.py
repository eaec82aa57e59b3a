"""Messages over asyncio: v2, and v1 with peers that speak nothing else.

All connections of one event loop share two batches. What their sockets brought in one turn of
the loop is opened by one call, and what was sent in one turn is sealed by one call.
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

#: A reader that has so much unread takes no more from its socket: bytes of payloads, and
#: MESSAGE_COST for each message.
MAX_UNREAD = 4 * 1024 * 1024
#: What a message takes besides its payload, in bytes: a tuple, two objects, a place in a queue.
MESSAGE_COST = 256
#: How much a peer may send before its verack, counted like MAX_UNREAD. Nodes send a few messages
#: without payloads.
MAX_BEFORE_VERACK = 64 * 1024
#: ``Writer.max_unsent`` of a new connection, in bytes: four of the longest payloads.
MAX_UNSENT = 16 * 1024 * 1024
#: How long a connection that was closed may take to send what is unsent, in seconds.
CLOSE_TIMEOUT = 30.0
PROTOCOL_VERSION = 70016
USER_AGENT = "/packetlane-python:0.1.0/"


class Closed(Error):
    """The connection is closed."""


class SendBufferFull(Error):
    """The peer takes less than is sent: nothing was sent by this call. Await ``Writer.drain``."""


def _cost(message: tuple[str, bytes]) -> int:
    return MESSAGE_COST + len(message[1])


@dataclass(frozen=True)
class Version:
    """What our ``version`` message says. Its time and its nonce are made for each peer."""

    #: Bits of services.
    services: int = 0
    #: At most 256 bytes of UTF-8.
    user_agent: str = USER_AGENT
    #: Of the last block.
    height: int = 0
    #: Whether the peer should announce transactions.
    relay: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.services < 1 << 64:
            raise ValueError(f"services {self.services} are not 64 bits")
        if not -1 << 31 <= self.height < 1 << 31:
            raise ValueError(f"height {self.height} is not of 32 bits")
        if len(self.user_agent.encode()) > 256:
            raise ValueError("the user agent is longer than 256 bytes")

    def encode(self) -> bytes:
        """A payload for one peer."""
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
    """What the connections of one event loop have to open and to seal."""

    _of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turn] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self.engine = Engine()
        self.incoming = OpenBatch()
        self.outgoing = SealBatch()
        self.fed: dict[_Connection, Session] = {}
        self.pushed: dict[_Connection, list[Slot]] = {}

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Turn:
        turn = cls._of.get(loop)
        if turn is None:
            turn = cls._of[loop] = cls()
        return turn

    def feed(self, connection: _Connection, session: Session, data: bytes) -> None:
        if not self.fed:
            connection.loop.call_soon(self.open)
        self.fed[connection] = session
        try:
            session.feed(self.incoming, data)
        except Error:
            pass  # it comes again, behind the packets that came before it
        if self.incoming.bytes_used >= OpenBatch.ENOUGH_BYTES:
            self.open()

    def open(self) -> None:
        fed, self.fed = self.fed, {}
        self.engine.open(self.incoming)
        for connection, session in fed.items():
            try:
                while messages := session.messages(self.incoming):
                    connection.deliver(messages)
            except Error as error:
                connection.fail(error)
        self.incoming.clear()

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
            # A copy: asyncio keeps what the socket does not take.
            connection.write(self.outgoing.wire_bytes(slots))
        self.outgoing.clear()


class _Connection(asyncio.Protocol):
    """One socket. ``handshake`` is ``None`` to speak v1 from the beginning."""

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
        #: Messages that nobody has read, and what they cost.
        self.unread: deque[tuple[str, bytes]] = deque()
        self.unread_cost = 0
        self.end: Optional[Exception] = None
        self.reading: Optional[asyncio.Future[None]] = None
        self.writable = asyncio.Event()
        self.writable.set()
        #: The payload of its ``version``.
        self.peer_version: Optional[bytes] = None
        #: What waits in the turn to be sealed, in bytes.
        self.pushed_bytes = 0
        #: Aborts a connection that does not become closed.
        self.close_timer: Optional[asyncio.TimerHandle] = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Of a class of its own in uvloop.
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
                progress = self.handshake.receive(data)
            except Error as error:
                self.fail(error)
                return
            self.write(self.handshake.take_output())
            if isinstance(progress, Session):
                self.session = progress
                self.set_ready()
                if progress.needs_turn:
                    self.turn.feed(self, progress, b"")
            elif isinstance(progress, V1):
                self.handshake = None
                self.set_ready()
                self.receive_v1(progress.received)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        # First: a transport that is lost must not be aborted.
        self.lost.set_result(None)
        if self.close_timer is not None:
            self.close_timer.cancel()
        if self in self.turn.fed:
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

    # What a turn and the two streams call.

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
        """The first message of ``unread``, which is not empty."""
        message = self.unread.popleft()
        before = self.unread_cost
        self.unread_cost -= _cost(message)
        if self.unread_cost <= MAX_UNREAD < before and self.transport is not None:
            self.transport.resume_reading()
        return message

    def put_back(self, messages: list[tuple[str, bytes]]) -> None:
        """Puts messages that were taken in front of ``unread``."""
        behind, self.unread = self.unread, deque()
        self.deliver(messages)
        self.unread.extend(behind)

    def fail(self, error: Exception) -> None:
        """Ends the connection with an error, if it has not ended yet."""
        if self.end is None:
            self.end = error
            if not self.ready.done():
                self.ready.set_exception(error)
                self.ready.exception()  # nobody may wait for it
            self.wake()
        if self.transport is not None and not self.lost.done():
            self.transport.abort()

    def close(self) -> None:
        """Closes the connection when all that was sent is on its way, or time is up."""
        if self in self.turn.pushed:
            self.turn.seal()
        if self.transport is None or self.lost.done():
            return
        self.transport.close()
        if self.close_timer is None and self.transport.get_write_buffer_size():
            error = Closed(f"the peer did not take what was sent to it in {CLOSE_TIMEOUT:g} s")
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
        """The next message: its type and its payload.

        Raises ``Closed`` when there are no more, or the ``Error`` that ended the connection.
        """
        connection = self._connection
        while not connection.unread:
            if connection.end is not None:
                raise connection.end
            if connection.reading is not None:
                raise RuntimeError("somebody else waits for this reader's next message")
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

    #: ``send`` is refused while more bytes than this are ``unsent``.
    max_unsent: int

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.max_unsent = MAX_UNSENT

    @property
    def version(self) -> int:
        """The transport's version: 2, or 1 with a peer that speaks nothing else."""
        return 1 if self._connection.session is None else 2

    @property
    def session_id(self) -> Optional[bytes]:
        """The id of the v2 session: equal on both sides unless somebody is in between."""
        session = self._connection.session
        return None if session is None else session.id

    @property
    def peer_version(self) -> Optional[bytes]:
        """The payload of the peer's ``version``, after ``exchange_versions`` (``handshake=True``)."""
        return self._connection.peer_version

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As ``asyncio.Transport.get_extra_info``: ``peername``, ``socket``."""
        transport = self._connection.transport
        return default if transport is None else transport.get_extra_info(name, default)

    @property
    def unsent(self) -> int:
        """How much of what was sent the socket has not taken yet, in bytes on the wire."""
        transport = self._connection.transport
        waiting = 0 if transport is None else transport.get_write_buffer_size()
        return waiting + self._connection.pushed_bytes

    def send(self, message_type: str, payload: Buffer = b"") -> None:
        """Sends a message, in this turn of the event loop, with all others that are sent in it.

        Raises ``SendBufferFull`` if more than ``max_unsent`` bytes are ``unsent``, and ``Closed``
        or the ``Error`` that ended the connection.
        """
        connection = self._connection
        if connection.end is not None:
            raise connection.end
        if self.unsent > self.max_unsent:
            raise SendBufferFull(
                f"{self.unsent} bytes are unsent, and the limit is {self.max_unsent}: await drain()"
            )
        if connection.session is None:
            connection.write(encode_v1(connection.network, message_type, payload))
        else:
            connection.turn.push(connection, connection.session, message_type, payload)

    async def drain(self) -> None:
        """Waits until no more than 64 KiB are ``unsent``.

        That takes as long as the peer likes: bound it by ``asyncio.wait_for``.
        """
        await asyncio.sleep(0)
        await self._connection.writable.wait()
        if self._connection.end is not None:
            raise self._connection.end

    def close(self) -> None:
        """Closes the connection when all that was sent is on its way.

        If the peer does not take it in 30 seconds, the connection is aborted.
        """
        self._connection.close()

    def abort(self) -> None:
        """Closes the connection at once. What is unsent is lost."""
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
    """Connects to a node by v2. If it may speak v1 only, connects again by v1, unless ``v2_only``.

    It may if it closes, answers by v1, or sends nothing for ``timeout``. ``timeout`` is in
    seconds, for each step: TCP, v2, versions. ``total_timeout`` is for all of them together.
    With ``handshake`` the version messages have been exchanged when it returns
    (``exchange_versions``); a ``Version`` says what ours has. ``dial`` makes each TCP connection
    in place of asyncio, as ``connect`` of a SOCKS5 client does.
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
    """The result of ``what``. Raises a ``TimeoutError`` that says ``text``."""
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
            # As if it had closed. A v1 node may also wait for the rest of what it takes for a
            # message (btcd, where the length that it reads is below 4 MB: one time in 1,074).
            if v2 is not None and isinstance(v2.closed(), ClosedUnanswered):
                text = f"the peer did not answer in {timeout:g} s: it may speak v1 only"
                raise ClosedUnanswered(text) from None
            raise
        if handshake:
            text = f"the peer did not send version and verack in {timeout:g} s"
            await _within(timeout, exchange_versions(reader, writer, _own(handshake)), text)
    except BaseException:
        connection.fail(Closed("the connection was given up"))
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
    """Accepts peers that speak v2 or v1, and calls ``callback`` for each.

    When the callback returns, its connection is closed. With ``handshake`` the version messages
    have been exchanged when it is called, as by ``connect``. ``timeout`` is how long a peer may take
    to shake hands, in seconds.
    """
    Handshake.responder(network)  # what is wrong with it is said now, not to each peer
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
            connection.fail(Closed("the peer did not shake hands"))
            return
        try:
            await callback(reader, writer)
        except (Error, OSError):
            # Of the connection, which has ended; any other is the callback's own, and is logged.
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
    """Exchanges ``version`` and ``verack``, and asks for ``addrv2``.

    ``answer`` is for the side that accepted the connection. Returns the payload of the peer's
    ``version``. Other messages that come meanwhile wait in the reader; more than a few of them
    end the connection with an ``Error``.
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
