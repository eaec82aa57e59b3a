//! SIGINT, SIGTERM and SIGHUP end `connect` and `listen` in order: no new connections, and the
//! reports on those that there are.

use std::io;
#[cfg(any(feature = "gateway", feature = "peers"))]
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::sleep;

/// How long a command may take to end. After that the process exits, whatever it waits for: a disk,
/// or a program that does not read our standard output.
const LAST_REPORTS: Duration = Duration::from_millis(800);

/// The same where probes are taken out of a node, for which the kernel takes a second or two.
#[cfg(feature = "peers")]
pub(crate) const LAST_PROBES: Duration = Duration::from_secs(5);

/// Says when a signal has come. Every await of a connection is raced against it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    signal: watch::Receiver<Option<&'static str>>,
}

impl Stop {
    /// Catches the signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        Self::within(LAST_REPORTS)
    }

    /// Catches the signals from now on. `limit` is how long the command may then take to end.
    fn within(limit: Duration) -> io::Result<Self> {
        let (sender, signal) = watch::channel(None);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let caught = {
            let _inside = runtime.enter();
            catch()?
        };
        // On a thread of its own, because a write to a disk or to a pipe blocks the other.
        let wait = move || {
            runtime.block_on(async {
                sender.send_replace(Some(caught.await));
                sleep(limit).await;
                crate::terminal::put_back();
                std::process::exit(1);
            });
        };
        std::thread::Builder::new().spawn(wait)?;
        Ok(Self { signal })
    }

    /// Waits for a signal and returns its name.
    pub(crate) async fn signalled(&self) -> &'static str {
        let mut signal = self.signal.clone();
        if let Ok(name) = signal.wait_for(Option::is_some).await
            && let Some(name) = *name
        {
            return name;
        }
        // Only if the thread that catches the signals has ended.
        std::future::pending().await
    }

    /// The result of `work`, unless a signal comes first.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        tokio::select! {
            biased;
            signal = self.signalled() => Err(Stopped { signal }),
            done = work => Ok(done),
        }
    }
}

/// A signal came before the work was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    /// The name of the signal.
    pub(crate) signal: &'static str,
}

/// Whether SIGINT, SIGTERM or SIGHUP has come.
#[cfg(any(feature = "gateway", feature = "peers"))]
pub(crate) struct Signal {
    has_come: Arc<AtomicBool>,
}

#[cfg(any(feature = "gateway", feature = "peers"))]
impl Signal {
    #[cfg(feature = "gateway")]
    pub(crate) fn catch() -> io::Result<Self> {
        Self::within(LAST_REPORTS)
    }

    /// Catches the signals from now on. `limit` is how long the command may then take to end.
    pub(crate) fn within(limit: Duration) -> io::Result<Self> {
        let stop = Stop::within(limit)?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let has_come = Arc::new(AtomicBool::new(false));
        let sets = Arc::clone(&has_come);
        std::thread::Builder::new().spawn(move || {
            let _: &str = runtime.block_on(stop.signalled());
            sets.store(true, Ordering::Relaxed);
        })?;
        Ok(Self { has_come })
    }

    pub(crate) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }
}

/// The name of the first signal that comes. Signals are caught from this call on.
#[cfg(unix)]
fn catch() -> io::Result<impl Future<Output = &'static str>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hang_up.recv() => "SIGHUP",
        }
    })
}

/// The name of the first signal that comes: elsewhere there is Ctrl-C alone.
#[cfg(not(unix))]
fn catch() -> io::Result<impl Future<Output = &'static str>> {
    Ok(async {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "SIGINT",
            Err(_) => std::future::pending().await,
        }
    })
}
