//! The event queue of a thread.

use crate::close::Close;
use crate::link::{End, Side};
use crate::settings::Settings;
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Wakes the thread for a request or the result of a lookup.
const WAKER: Token = Token(usize::MAX);

/// The first token of the listeners.
const LISTENERS: usize = usize::MAX - MAX_LISTENERS;

/// Those of peers, and those of the node.
const MAX_LISTENERS: usize = Settings::MAX_INBOUND + 2;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The listener with this index.
    Listener(usize),
    /// The socket at this end of the link with this number.
    Link(usize, End),
}

impl Subject {
    fn token(self) -> Token {
        Token(match self {
            Self::Listener(index) => LISTENERS + index,
            Self::Link(number, End::Peer) => 2 * number,
            Self::Link(number, End::Node) => 2 * number + 1,
        })
    }

    /// What an event with this token is about; `None` for a wake-up.
    pub(crate) fn of(token: Token) -> Option<Self> {
        match token {
            WAKER => None,
            Token(token) if token >= LISTENERS => Some(Self::Listener(token - LISTENERS)),
            Token(token) if token % 2 == 0 => Some(Self::Link(token / 2, End::Peer)),
            Token(token) => Some(Self::Link(token / 2, End::Node)),
        }
    }
}

/// A thread's event queue.
#[derive(Debug)]
pub(crate) struct Reactor {
    poll: Poll,
    pub(crate) waker: Arc<Waker>,
}

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok(Self { poll, waker })
    }

    /// Reports from now on when a listener has a connection.
    pub(crate) fn add_listener(&self, socket: &mut impl Source, index: usize) -> io::Result<()> {
        let token = Subject::Listener(index).token();
        self.poll
            .registry()
            .register(socket, token, Interest::READABLE)
    }

    /// Gives a side of the link with this number its socket, and reports from now on when it becomes
    /// readable or writable.
    pub(crate) fn open(
        &self,
        side: &mut Side,
        number: usize,
        mut socket: TcpStream,
    ) -> Result<(), Close> {
        let token = Subject::Link(number, side.end).token();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let registered = registry.register(&mut socket, token, interest);
        registered.map_err(|error| side.end.failed(error))?;
        *side = Side::new(side.end, Some(socket));
        Ok(())
    }

    /// Reports nothing more. A socket that closes needs no such call.
    pub(crate) fn remove(&self, socket: &mut impl Source) -> io::Result<()> {
        self.poll.registry().deregister(socket)
    }

    /// Waits until there are events, for at most `timeout`.
    pub(crate) fn wait(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }
}
