//! Signals: on SIGINT, SIGTERM and SIGHUP, commands accept no new connections, finish their reports
//! and exit.

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

/// How long a command may take to finish after a signal. Then the process exits, even if a disk or
/// the reader of standard output blocks.
const EXIT_LIMIT: Duration = Duration::from_millis(800);

/// The same for commands that must remove probes from a node, which takes the kernel a second or
/// two.
#[cfg(feature = "peers")]
pub(crate) const EXIT_LIMIT_WITH_PROBES: Duration = Duration::from_secs(5);

/// Reports that a signal has arrived. Every await on a connection races against it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    signal: watch::Receiver<Option<&'static str>>,
}

impl Stop {
    /// Catches signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        Self::within(EXIT_LIMIT)
    }

    /// Catches signals from now on. The process exits `limit` after the first one.
    fn within(limit: Duration) -> io::Result<Self> {
        let (sender, signal) = watch::channel(None);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let caught = {
            let _inside = runtime.enter();
            catch()?
        };
        // In a thread of its own, because writing to a disk or a pipe can block the other.
        let wait = move || {
            runtime.block_on(async {
                sender.send_replace(Some(caught.await));
                sleep(limit).await;
                crate::terminal::restore();
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
        // Only reached if the thread that catches signals has ended.
        std::future::pending().await
    }

    /// Returns the result of `work`, unless a signal comes first.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        tokio::select! {
            biased;
            signal = self.signalled() => Err(Stopped { signal }),
            done = work => Ok(done),
        }
    }
}

/// A signal arrived before the work was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    /// Name of the signal.
    pub(crate) signal: &'static str,
}

/// Whether SIGINT, SIGTERM or SIGHUP has arrived.
#[cfg(any(feature = "gateway", feature = "peers"))]
pub(crate) struct Signal {
    has_arrived: Arc<AtomicBool>,
}

#[cfg(any(feature = "gateway", feature = "peers"))]
impl Signal {
    #[cfg(feature = "gateway")]
    pub(crate) fn catch() -> io::Result<Self> {
        Self::within(EXIT_LIMIT)
    }

    /// Catches signals from now on. The process exits `limit` after the first one.
    pub(crate) fn within(limit: Duration) -> io::Result<Self> {
        let stop = Stop::within(limit)?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let has_arrived = Arc::new(AtomicBool::new(false));
        let sets = Arc::clone(&has_arrived);
        std::thread::Builder::new().spawn(move || {
            let _: &str = runtime.block_on(stop.signalled());
            sets.store(true, Ordering::Relaxed);
        })?;
        Ok(Self { has_arrived })
    }

    pub(crate) fn has_arrived(&self) -> bool {
        self.has_arrived.load(Ordering::Relaxed)
    }
}

/// Returns the name of the first signal. Signals are caught from this call on.
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

/// Returns the name of the first signal: on other systems only Ctrl-C.
#[cfg(not(unix))]
fn catch() -> io::Result<impl Future<Output = &'static str>> {
    Ok(async {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "SIGINT",
            Err(_) => std::future::pending().await,
        }
    })
}
