//! What commands publish to NATS JetStream: a message is JSON, its subject ends with the node's
//! name, and a stream keeps all of them. NATS takes no dots in the name of a stream.
//!
//! While the server is away messages are held back, up to a bound. Each has an id, so that one which
//! was accepted without an answer is not stored twice when it is sent again.

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

/// How long a stream keeps a message, and how many bytes of them, if this command makes it.
/// JetStream sets the bytes aside at once: where it has fewer, it is asked for half, down to the
/// least.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
const MAX_BYTES: i64 = 1 << 30;
const LEAST_BYTES: i64 = 16 << 20;

/// How long the server may take for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// How long to wait before the server is tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// Messages that are sent before the first is answered.
const TOGETHER: usize = 64;

/// How long the end of the command waits for what is not published yet.
const LAST: Duration = Duration::from_millis(500);

/// Where a command publishes.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) name: &'static str,
    /// What stands before the node's name in a subject.
    pub(crate) subject: &'static str,
    /// What the server knows the client by.
    pub(crate) client: &'static str,
    /// Messages that are held back.
    pub(crate) held: usize,
}

/// What there is to say of the server. The first says whether it could be connected to.
#[derive(Debug)]
pub(crate) enum Notice {
    /// It is there, or there again.
    Connected,
    /// It takes no messages, and why.
    Away(String),
}

/// A connection to a server, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Publisher {
    messages: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Publisher {
    /// Begins to connect to the server, and makes the stream if it is not there.
    pub(crate) fn start(
        stream: &'static Stream,
        url: &str,
        node: &str,
        notify: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, String> {
        check(url)?;
        let (messages, waiting) = mpsc::channel(stream.held);
        let failed = |error: io::Error| format!("no thread for NATS: {error}");
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

    /// Has a message published. False if too many wait: then it never is.
    pub(crate) fn publish(&self, json: Vec<u8>) -> bool {
        self.messages.try_send(json).is_ok()
    }

    /// Gives the last messages a moment to be published.
    pub(crate) fn finish(self) {
        drop(self.messages);
        let end = Instant::now() + LAST;
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a server can have this URL.
pub(crate) fn check(url: &str) -> Result<(), String> {
    if url.contains('@') {
        return Err("--nats takes no password, which all users could see: set \
                    PACKETLANE_NATS_USER and PACKETLANE_NATS_PASSWORD"
            .to_owned());
    }
    let parsed = url.parse::<ServerAddr>();
    parsed.map_err(|error| format!("cannot connect to NATS at {url}: {error}"))?;
    Ok(())
}

/// The node's name: by default the machine's.
pub(crate) fn node_name(name: Option<&str>) -> String {
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.map(str::to_owned).or_else(machine);
    name.as_deref().unwrap_or("node").trim().to_owned()
}

/// Whether a server cannot set aside as many bytes as a stream may take.
fn lacks_storage(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(error) = error.kind() else {
        return false;
    };
    error.error_code() == ErrorCode::STORAGE_RESOURCES_EXCEEDED
}

/// A name as one token of a subject.
fn token(name: &str) -> String {
    let plain = |letter: char| match letter.is_ascii_alphanumeric() || letter == '-' {
        true => letter,
        false => '_',
    };
    name.chars().map(plain).collect()
}

/// What the thread does.
struct Sending {
    stream: &'static Stream,
    url: String,
    subject: String,
    /// Messages of this run of the command are told from all others by it and their number.
    run: u64,
    /// Of the first message that is not published.
    number: u64,
}

impl Sending {
    /// Publishes what comes, until no more can come.
    async fn run(mut self, mut messages: mpsc::Receiver<Vec<u8>>, notify: impl Fn(Notice)) {
        let mut is_away = false;
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(error) if is_away => drop(error),
                Err(error) => notify(Notice::Away(error)),
            }
            is_away = true;
            sleep(PAUSE).await;
        };
        notify(Notice::Connected);
        is_away = false;
        let mut waiting = Vec::new();
        while messages.recv_many(&mut waiting, TOGETHER).await > 0 {
            while let Err(error) = self.publish(&client, &waiting).await {
                if !std::mem::replace(&mut is_away, true) {
                    notify(Notice::Away(error));
                }
                sleep(PAUSE).await;
                // It may have lost its streams.
                if client.connection_state() == State::Connected {
                    let _ = self.make_stream(&client).await;
                }
            }
            self.number += waiting.len() as u64;
            waiting.clear();
            if std::mem::take(&mut is_away) {
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

    /// Makes the stream, if it is not there.
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
                Ok(Err(error)) if lacks_storage(&error) && config.max_bytes > LEAST_BYTES => {
                    config.max_bytes /= 2;
                }
                Ok(Err(error)) => break error.to_string(),
                Err(_) => break "no answer; is JetStream on?".to_owned(),
            }
        };
        Err(format!(
            "NATS at {} has no stream {name}: {error}",
            self.url
        ))
    }

    /// Publishes messages, of which the server may have some already.
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
