//! `peers watch --act`: disconnects costly peers by rules, or says which ones it would.

use packetlane_files::Name;
use packetlane_p2p::payload::printable;
use packetlane_peers::Time;
use packetlane_peers::act::{Actor, Rules};
use packetlane_peers::rpc::Rpc;
use packetlane_peers::tally::Tally;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Applies the rules.
pub(super) struct Acting {
    actor: Actor,
    log: Option<(File, PathBuf)>,
    /// `None` in a dry run.
    rpc: Option<Rpc>,
}

impl Acting {
    /// Opens the log. Without `rpc`, nothing is done but said.
    pub(super) fn open(rules: Rules, log: Option<&Path>, rpc: Option<Rpc>) -> Result<Self, String> {
        let open = |path: &Path| {
            let file = File::options().append(true).create(true).open(path);
            let failed = |error| format!("--act-log: cannot write {}: {error}", Name(path));
            Ok::<_, String>((file.map_err(failed)?, path.to_owned()))
        };
        Ok(Self {
            actor: Actor::new(rules),
            log: log.map(open).transpose()?,
            rpc,
        })
    }

    /// Acts on what the rules choose after a window. Returns what was done, or would be, and why.
    ///
    /// # Errors
    ///
    /// The log cannot be written. Nobody is disconnected without a log that was asked for.
    pub(super) fn act(
        &mut self,
        tally: &Tally,
        (start, end): (Time, Time),
    ) -> Result<Vec<String>, String> {
        let mut done = Vec::new();
        for action in self.actor.decide(tally, start) {
            let what = format!(
                "peer {} ({}): {}",
                action.peer,
                printable(action.address.as_bytes()),
                action.reason
            );
            self.log(
                end,
                &match self.rpc {
                    Some(_) => format!("disconnecting {what}"),
                    None => format!("dry run: would disconnect {what}"),
                },
            )?;
            let text = match &self.rpc {
                None => format!("dry run: would disconnect {what}"),
                Some(rpc) => match rpc.disconnect(action.peer, &action.address) {
                    Ok(()) => format!("disconnected {what}"),
                    Err(error) => format!("did not disconnect {what}; {error}"),
                },
            };
            if self.rpc.is_some() {
                self.log(end, &text)?;
            }
            done.push(text);
        }
        Ok(done)
    }

    fn log(&mut self, time: Time, text: &str) -> Result<(), String> {
        let Some((file, path)) = &mut self.log else {
            return Ok(());
        };
        let time =
            humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_micros(time));
        writeln!(file, "{time} {text}")
            .map_err(|error| format!("--act-log: cannot write {}: {error}", Name(path)))
    }
}
