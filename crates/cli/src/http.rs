//! A small HTTP server, for Prometheus and for health checks.
//!
//! A client may send and read what it likes: there is one at a time, for [`LIMIT`] at most, and
//! of a request no more than [`MAX_REQUEST`] is read.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a client may take for its request and for reading the answer.
const LIMIT: Duration = Duration::from_secs(2);

/// The longest request, in bytes.
const MAX_REQUEST: usize = 8192;

/// Prometheus's text format.
pub(crate) const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// What is at a path.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) content_type: &'static str,
    pub(crate) text: Arc<str>,
}

/// A server, in a thread of its own until it is closed or the program ends.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    #[cfg_attr(not(feature = "gateway"), expect(dead_code, reason = "for `close`"))]
    listener: Arc<TcpListener>,
    #[cfg_attr(not(feature = "gateway"), expect(dead_code, reason = "for `close`"))]
    is_closed: Arc<AtomicBool>,
}

impl Server {
    /// Answers with the page at each path.
    pub(crate) fn start(
        listener: TcpListener,
        page: impl Fn(&str) -> Option<Page> + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let listener = Arc::new(listener);
        let is_closed = Arc::<AtomicBool>::default();
        let server = Self {
            address,
            listener: Arc::clone(&listener),
            is_closed: Arc::clone(&is_closed),
        };
        let serve = move || {
            for stream in listener.incoming() {
                match stream {
                    Err(_) if is_closed.load(Ordering::Relaxed) => return,
                    // A client that has gone, or is too slow: it will ask again.
                    Ok(stream) => drop(answer(&stream, &page, Instant::now() + LIMIT)),
                    // Out of file descriptors, perhaps: not again at once.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        };
        std::thread::Builder::new()
            .name("http".into())
            .spawn(serve)?;
        Ok(server)
    }

    /// Listens no more. Who waits is reset, and will ask again.
    #[cfg(feature = "gateway")]
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // That wakes the thread. If it fails, the server stays until the program ends.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn answer(
    mut stream: &TcpStream,
    page: &impl Fn(&str) -> Option<Page>,
    end: Instant,
) -> io::Result<()> {
    let left = || match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => io::Result::Ok(Some(left)),
    };
    let mut request = [0; MAX_REQUEST];
    let mut length = 0;
    while !request[..length].ends_with(b"\r\n\r\n") {
        stream.set_read_timeout(left()?)?;
        match stream.read(&mut request[length..])? {
            // The client has ended, or sends too much.
            0 => return Ok(()),
            more => length += more,
        }
    }
    let plain = |text: &str| Page {
        content_type: "text/plain",
        text: text.into(),
    };
    let (status, page) = match request.split(|&byte| byte == b' ').collect::<Vec<_>>()[..] {
        [b"GET" | b"HEAD", path, ..] => match str::from_utf8(path).ok().and_then(page) {
            Some(page) => ("200 OK", page),
            None => ("404 Not Found", plain("nothing is here; see --help\n")),
        },
        _ => ("405 Method Not Allowed", plain("GET only\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.content_type,
        page.text.len()
    );
    let body = match request.starts_with(b"HEAD") {
        true => "",
        false => &*page.text,
    };
    for part in [head.as_bytes(), body.as_bytes()] {
        for part in part.chunks(1 << 16) {
            stream.set_write_timeout(left()?)?;
            stream.write_all(part)?;
        }
    }
    Ok(())
}

/// What stands before the series of a metric.
pub(crate) fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// A metric of one value.
pub(crate) fn metric(name: &str, kind: &str, help: &str, value: impl Display) -> String {
    format!("{}{name} {value}\n", head(name, kind, help))
}

/// Text as a label's value.
pub(crate) fn label(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn serve() -> Server {
        let page = |path: &str| {
            let page = Page {
                content_type: "text/plain",
                text: "it is here".into(),
            };
            (path == "/here").then_some(page)
        };
        Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), page).unwrap()
    }

    #[test]
    fn what_is_answered() {
        let address = serve().address();
        let answer = ask(address, "GET /here HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 10\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nit is here"), "{answer}");
        let answer = ask(address, "GET / HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        let answer = ask(address, "POST /here HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        assert!(ask(address, "HEAD /here HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    }

    #[cfg(feature = "gateway")]
    #[test]
    fn a_closed_server_is_not_there() {
        let server = serve();
        ask(server.address(), "GET /here HTTP/1.1\r\n\r\n");
        server.close();
        let refused = TcpStream::connect(server.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// One that says nothing, and one that says too much, do not keep others out.
    #[test]
    fn bad_clients() {
        let address = serve().address();
        let silent = TcpStream::connect(address).unwrap();
        let mut long = TcpStream::connect(address).unwrap();
        let _ = long.write_all(&vec![b'a'; 2 * MAX_REQUEST]);
        let begun = Instant::now();
        let answer = ask(address, "GET /here HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("it is here"), "{answer}");
        assert!(begun.elapsed() < 3 * LIMIT);
        drop(silent);
    }
}
