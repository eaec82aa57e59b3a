//! A NATS server with JetStream, found in PATH.

use super::real::not_run;
use async_nats::{ConnectOptions, jetstream};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    /// Starts the server on a loopback address, or prints that there is none. It has 100 MB for
    /// streams, which is less than streams first request.
    pub(crate) fn start(test: &str, address: SocketAddr) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("packetlane-nats-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the server");
        let configuration = folder.join("nats.conf");
        let text = format!(
            "listen: \"{address}\"
             jetstream {{ store_dir: {folder:?}, max_file_store: 100MB }}
             authorization {{ user: u, password: secret }}"
        );
        std::fs::write(&configuration, text).expect("the server's configuration");
        let process = Command::new("nats-server")
            .arg("--config")
            .arg(configuration)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                not_run(&format!("{test}: nats-server: {error}"));
                return None;
            }
        };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < LIMIT, "nats-server does not start");
            thread::sleep(Duration::from_millis(50));
        }
        Some(Self {
            process,
            address,
            folder,
        })
    }

    /// Stops it; its stored messages remain.
    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// The message with this number in a stream: its subject and contents.
    pub(crate) async fn message(&self, stream: &str, number: u64) -> (String, serde_json::Value) {
        let options = ConnectOptions::with_user_and_password("u".into(), "secret".into());
        let client = options.connect(self.url()).await.expect("the server");
        let context = jetstream::new(client);
        let begun = Instant::now();
        let stream = loop {
            match context.get_stream(stream).await {
                Ok(stream) => break stream,
                Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        loop {
            match stream.get_raw_message(number).await {
                Ok(message) => {
                    let json = serde_json::from_slice(&message.payload).expect("JSON");
                    return (message.subject.to_string(), json);
                }
                Err(error) => assert!(begun.elapsed() < LIMIT, "{number}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
