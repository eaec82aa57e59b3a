//! `peers watch --act`: disconnects costly peers by rules, or says which ones it would.

use packetlane_files::Name;
use packetlane_p2p::payload::printable;
use packetlane_peers::Time;
use packetlane_peers::act::{Actor, Rules};
use packetlane_peers::rpc::{Rpc, RpcError};
use packetlane_peers::tally::Tally;
use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Connects to the node's RPC.
pub(super) type Connect = Box<dyn Fn() -> Result<Rpc, Box<dyn Error>>>;

/// Applies the rules.
pub(super) struct Acting {
    actor: Actor,
    log: Option<(File, PathBuf)>,
    /// How to reach the node. `None` in a dry run.
    connect: Option<Connect>,
    /// The peers that could not be disconnected after the last window, and why. Each is reported once.
    failed: Vec<(i64, String)>,
    /// Whether it was said that windows are too far apart.
    is_warned: bool,
    begun: Instant,
}

impl Acting {
    /// Opens the log. Without `connect`, nothing is done but said.
    pub(super) fn open(
        rules: Rules,
        log: Option<&Path>,
        connect: Option<Connect>,
    ) -> Result<Self, String> {
        let open = |path: &Path| {
            let file = File::options().append(true).create(true).open(path);
            let failed = |error| format!("--act-log: cannot write {}: {error}", Name(path));
            Ok::<_, String>((file.map_err(failed)?, path.to_owned()))
        };
        Ok(Self {
            actor: Actor::new(rules),
            log: log.map(open).transpose()?,
            connect,
            failed: Vec::new(),
            is_warned: false,
            begun: Instant::now(),
        })
    }

    /// Acts on what the rules choose after a window. Returns what was done, or would be, and why.
    ///
    /// # Errors
    ///
    /// The log cannot be written.
    pub(super) fn act(
        &mut self,
        tally: &Tally,
        window: (Time, Time),
    ) -> Result<Vec<String>, String> {
        let mut done = Vec::new();
        let failed_before = std::mem::take(&mut self.failed);
        for action in self.actor.decide(tally, window, self.begun.elapsed()) {
            let what = format!(
                "peer {} ({}): {}",
                action.peer,
                printable(action.address.as_bytes()),
                action.reason
            );
            let disconnect = |connect: &Connect| -> Result<(), Box<dyn Error>> {
                Ok(connect()?.disconnect(action.peer, &action.address)?)
            };
            let text = match self.connect.as_ref().map(disconnect) {
                None => format!("dry run: would disconnect {what}"),
                Some(Ok(())) => format!("disconnected {what}"),
                Some(Err(error)) => {
                    let (is_kept, is_asked) = match error.downcast_ref() {
                        Some(RpcError::Kept { .. }) => (true, false),
                        Some(RpcError::Asked(_)) => (false, true),
                        _ => (false, false),
                    };
                    if !is_asked {
                        self.actor.spare();
                    }
                    if !is_kept {
                        self.actor.retry(action.peer);
                    }
                    let failed = (action.peer, error.to_string());
                    let is_repeated = failed_before.contains(&failed);
                    self.failed.push(failed);
                    if is_repeated {
                        continue;
                    }
                    format!("did not disconnect {what}; {error}")
                }
            };
            self.log(window.1, &text)?;
            done.push(text);
        }
        if let Some(obstacle) = self.actor.obstacle().filter(|_| !self.is_warned) {
            self.is_warned = true;
            done.push(format!(
                "warning: --act: {obstacle}; see --all, --every and --cost"
            ));
        }
        Ok(done)
    }

    fn log(&mut self, time: Time, text: &str) -> Result<(), String> {
        let Some((file, path)) = &mut self.log else {
            return Ok(());
        };
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(time);
        let time = humantime::format_rfc3339_seconds(time);
        writeln!(file, "{time} {text}")
            .map_err(|error| format!("--act-log: cannot write {}: {error}", Name(path)))
    }
}
