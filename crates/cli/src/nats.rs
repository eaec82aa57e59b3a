//! Publishes JSON messages to NATS JetStream. The subject ends with the node's name, and one stream
//! stores all messages of a command. Stream names cannot contain dots.
//!
//! While the server is unavailable, messages are queued, up to a limit. Each has an id, so that a
//! message that was stored but not acknowledged is not stored again when it is resent.

use async_nats::connection::State;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode, stream};
use async_nats::{Client, ConnectOptions, ServerAddr};
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Limits of a stream that this command creates. JetStream reserves the bytes at once; if it has
/// too few, half is requested, and so on down to `MIN_BYTES`.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
const MAX_BYTES: i64 = 1 << 30;
const MIN_BYTES: i64 = 16 << 20;

/// How long the server may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(250);

/// Maximum messages sent before the first is acknowledged.
const MAX_IN_FLIGHT: usize = 64;

/// How long the command waits for the last messages when it ends.
const FINISH_TIME: Duration = Duration::from_millis(500);

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) name: &'static str,
    /// Subject without the node's name.
    pub(crate) subject: &'static str,
    /// Name of the client, shown by the server.
    pub(crate) client: &'static str,
    /// Maximum messages in the queue.
    pub(crate) held: usize,
}

/// A change of the server's state. The first notice is about the first connection attempt.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Connected, or connected again.
    Connected,
    /// Unavailable, and why.
    Unavailable(String),
}

/// Publishes messages from a thread of its own.
#[derive(Debug)]
pub(crate) struct Publisher {
    messages: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Publisher {
    /// Starts connecting, and creates the stream if it does not exist.
    pub(crate) fn start(
        stream: &'static Stream,
        url: &str,
        node: &str,
        notify: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, String> {
        check(url)?;
        let (messages, waiting) = mpsc::channel(stream.held);
        let failed = |error: io::Error| format!("cannot start the NATS thread: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|error| failed(io::Error::other(error)))?;
        let sending = Sending {
            stream,
            url: url.to_owned(),
            subject: format!("{}.{}", stream.subject, token(node)),
            run: u64::from_ne_bytes(run),
            number: 0,
        };
        let thread = std::thread::Builder::new()
            .name("nats".into())
            .spawn(move || runtime.block_on(sending.run(waiting, notify)))
            .map_err(failed)?;
        Ok(Self { messages, thread })
    }

    /// Queues a message. Returns false if the queue is full; the message is then lost.
    pub(crate) fn publish(&self, json: Vec<u8>) -> bool {
        self.messages.try_send(json).is_ok()
    }

    /// Waits a moment for the last messages to be published.
    pub(crate) fn finish(self) {
        drop(self.messages);
        let end = Instant::now() + FINISH_TIME;
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Checks that a URL is valid and contains no password.
pub(crate) fn check(url: &str) -> Result<(), String> {
    if url.contains('@') {
        return Err(
            "other users could see a password in --nats: set PACKETLANE_NATS_USER and \
                    PACKETLANE_NATS_PASSWORD instead"
                .to_owned(),
        );
    }
    let parsed = url.parse::<ServerAddr>();
    parsed.map_err(|error| format!("cannot connect to NATS at {url}: {error}"))?;
    Ok(())
}

/// The node's name; by default the host name.
pub(crate) fn node_name(name: Option<&str>) -> String {
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.map(str::to_owned).or_else(machine);
    name.as_deref().unwrap_or("node").trim().to_owned()
}

/// Whether the server cannot reserve the bytes of a stream.
fn lacks_storage(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(error) = error.kind() else {
        return false;
    };
    error.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED
}

/// Turns a name into one token of a subject.
fn token(name: &str) -> String {
    let plain = |letter: char| match letter.is_ascii_alphanumeric() || letter == '-' {
        true => letter,
        false => '_',
    };
    name.chars().map(plain).collect()
}

/// The publishing thread.
struct Sending {
    stream: &'static Stream,
    url: String,
    subject: String,
    /// Random number of this run; with `number` it makes message ids unique.
    run: u64,
    /// Number of the first message that is not published.
    number: u64,
}

impl Sending {
    /// Publishes messages until the channel closes.
    async fn run(mut self, mut messages: mpsc::Receiver<Vec<u8>>, notify: impl Fn(Notice)) {
        let mut is_unavailable = false;
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(error) if is_unavailable => drop(error),
                Err(error) => notify(Notice::Unavailable(error)),
            }
            is_unavailable = true;
            sleep(PAUSE).await;
        };
        notify(Notice::Connected);
        is_unavailable = false;
        let mut waiting = Vec::new();
        while messages.recv_many(&mut waiting, MAX_IN_FLIGHT).await > 0 {
            while let Err(error) = self.publish(&client, &waiting).await {
                if !std::mem::replace(&mut is_unavailable, true) {
                    notify(Notice::Unavailable(error));
                }
                sleep(PAUSE).await;
                // The server may have lost its streams.
                if client.connection_state() == State::Connected {
                    let _ = self.make_stream(&client).await;
                }
            }
            self.number += waiting.len() as u64;
            waiting.clear();
            if std::mem::take(&mut is_unavailable) {
                notify(Notice::Connected);
            }
        }
    }

    async fn connect(&self) -> Result<Client, String> {
        let url = &self.url;
        let mut options = ConnectOptions::new()
            .name(self.stream.client)
            .connection_timeout(LIMIT);
        let variable = |name: &str| std::env::var(name).ok();
        if let (Some(user), Some(password)) = (
            variable("PACKETLANE_NATS_USER"),
            variable("PACKETLANE_NATS_PASSWORD"),
        ) {
            options = options.user_and_password(user, password);
        }
        let client = match timeout(LIMIT, options.connect(url)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(format!("cannot connect to NATS at {url}: {error}")),
            Err(_) => return Err(format!("cannot connect to NATS at {url}: no answer")),
        };
        self.make_stream(&client).await?;
        Ok(client)
    }

    /// Creates the stream if it does not exist.
    async fn make_stream(&self, client: &Client) -> Result<(), String> {
        let Stream { name, subject, .. } = self.stream;
        let mut config = stream::Config {
            name: (*name).to_owned(),
            subjects: vec![format!("{subject}.>")],
            max_age: MAX_AGE,
            max_bytes: MAX_BYTES,
            discard: stream::DiscardPolicy::Old,
            ..stream::Config::default()
        };
        let context = jetstream::new(client.clone());
        let error = loop {
            match timeout(LIMIT, context.get_or_create_stream(&config)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) if lacks_storage(&error) && config.max_bytes > MIN_BYTES => {
                    config.max_bytes /= 2;
                }
                Ok(Err(error)) => break error.to_string(),
                Err(_) => break "no answer; is JetStream enabled?".to_owned(),
            }
        };
        Err(format!(
            "cannot create stream {name} in NATS at {}: {error}",
            self.url
        ))
    }

    /// Publishes messages; the server may already have some of them.
    async fn publish(&self, client: &Client, messages: &[Vec<u8>]) -> Result<(), String> {
        if client.connection_state() != State::Connected {
            return Err("the connection is lost".to_owned());
        }
        let context = jetstream::new(client.clone());
        let send = async {
            let mut answers = Vec::new();
            for (json, number) in messages.iter().zip(self.number..) {
                let message = PublishMessage::build()
                    .payload(json.clone().into())
                    .message_id(format!("{:016x}-{number}", self.run));
                let sent = context.send_publish(self.subject.clone(), message).await;
                answers.push(sent.map_err(|error| error.to_string())?);
            }
            for answer in answers {
                answer.await.map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let sent = timeout(LIMIT, send).await;
        sent.unwrap_or_else(|_| Err("no answer".to_owned()))
    }
}
