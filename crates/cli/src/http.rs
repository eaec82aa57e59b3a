//! A small HTTP server for metrics and health checks.
//!
//! It serves up to [`MAX_CLIENTS`] connections, each for one request and at most [`CLIENT_LIMIT`].
//! When another client connects, the oldest one that has sent no request is dropped, so that idle
//! connections keep nobody out. At most [`MAX_SLOW_CLIENTS`] receive a slow page, which may be
//! long; the oldest of them is dropped for another.

use crate::sync::lock;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

/// Maximum connections at a time.
pub(crate) const MAX_CLIENTS: usize = 64;

/// How long a client may take to send its request and read the answer. Prometheus's default timeout
/// is the same.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// Maximum length of a request, in bytes: the lowest that hyper accepts.
const MAX_REQUEST: usize = 8192;

/// Maximum clients that wait for a slow page or read one.
const MAX_SLOW_CLIENTS: usize = 8;

/// Maximum slow pages generated at a time.
const MAX_SLOW_PAGES: usize = 4;

/// How long a client waits for a slow page.
const SLOW_PAGE_LIMIT: Duration = Duration::from_secs(5);

/// Content type of Prometheus's text format.
pub(crate) const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// A page.
pub(crate) struct Page {
    pub(crate) content_type: &'static str,
    pub(crate) text: Text,
    /// Whether the request's `Host` must name this server; see `check_host`.
    pub(crate) is_private: bool,
}

/// The text of a page.
pub(crate) enum Text {
    Ready(String),
    /// Generated on a thread of its own, because it may take long or never finish. An error is
    /// answered with status 503.
    #[cfg_attr(
        not(any(feature = "gateway", test)),
        expect(dead_code, reason = "the gateway's")
    )]
    Slow(Box<dyn FnOnce() -> Result<String, &'static str> + Send>),
}

/// A server on a thread of its own. Runs until it is closed or the process ends.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    #[cfg_attr(not(feature = "gateway"), expect(dead_code, reason = "for `close`"))]
    listener: Arc<TcpListener>,
    #[cfg_attr(not(feature = "gateway"), expect(dead_code, reason = "for `close`"))]
    is_closed: Arc<AtomicBool>,
}

impl Server {
    /// Starts serving the page at each path. `host` is the host in the address that the user gave;
    /// a private page requires it, `localhost` or an IP address in the `Host` header.
    pub(crate) fn start(
        listener: TcpListener,
        host: &str,
        page: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = Arc::new(listener);
        let is_closed = Arc::<AtomicBool>::default();
        let server = Self {
            address,
            listener: Arc::clone(&listener),
            is_closed: Arc::clone(&is_closed),
        };
        let pages = Arc::new(Pages {
            page,
            host: host.to_owned(),
            clients: Mutex::default(),
            slow: Arc::new(Semaphore::new(MAX_SLOW_PAGES)),
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let accepts = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener.try_clone()?)?
        };
        let serve = move || {
            runtime.block_on(serve(accepts, pages, &is_closed));
            // Does not wait for a page that is never ready.
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("http".into())
            .spawn(serve)?;
        Ok(server)
    }

    /// Stops listening. Current clients are still served; clients in the queue are reset and can
    /// retry.
    #[cfg(feature = "gateway")]
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread. If this fails, the server runs until the process ends.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    /// The address it listens at.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection.
#[derive(Debug)]
struct Client {
    state: Arc<Mutex<ClientState>>,
    task: AbortHandle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// The request has not arrived.
    Idle,
    Active,
    /// Waits for a slow page or reads it.
    Slow,
}

impl Client {
    fn is(&self, state: ClientState) -> bool {
        *lock(&self.state) == state
    }
}

async fn serve<P>(listener: tokio::net::TcpListener, pages: Arc<Pages<P>>, is_closed: &AtomicBool)
where
    P: Fn(&str) -> Option<Page> + Send + Sync + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) if is_closed.load(Ordering::Relaxed) => break,
            Err(_) => {
                // Perhaps out of file descriptors: wait before the next attempt.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let state = Arc::new(Mutex::new(ClientState::Idle));
        let (its_pages, its_state) = (Arc::clone(&pages), Arc::clone(&state));
        let answer = service_fn(move |request| {
            let (pages, state) = (Arc::clone(&its_pages), Arc::clone(&its_state));
            async move { io::Result::Ok(pages.answer(&request, &state).await) }
        });
        let connection = http1::Builder::new()
            .keep_alive(false)
            .half_close(true)
            .max_buf_size(MAX_REQUEST)
            .serve_connection(TokioIo::new(stream), answer);
        // A client that has gone or is too slow can retry.
        let task = tokio::spawn(async { drop(timeout(CLIENT_LIMIT, connection).await) });
        let task = task.abort_handle();
        pages.make_room();
        lock(&pages.clients).push(Client { state, task });
        // A request that is already here is answered before the next client is accepted.
        yield_now().await;
    }
    drop(listener);
    while !lock(&pages.clients)
        .iter()
        .all(|client| client.task.is_finished())
    {
        sleep(Duration::from_millis(10)).await;
    }
}

/// The pages that are served.
struct Pages<P> {
    page: P,
    /// The host in the address that the user gave: a name or an IP address.
    host: String,
    /// Oldest first.
    clients: Mutex<Vec<Client>>,
    /// Permits for slow pages being generated.
    slow: Arc<Semaphore>,
}

impl<P: Fn(&str) -> Option<Page>> Pages<P> {
    /// If there are [`MAX_CLIENTS`], drops the oldest idle client, or the oldest if none is idle.
    fn make_room(&self) {
        let mut clients = lock(&self.clients);
        clients.retain(|client| !client.task.is_finished());
        if clients.len() >= MAX_CLIENTS {
            let idle = clients
                .iter()
                .position(|client| client.is(ClientState::Idle));
            clients.remove(idle.unwrap_or(0)).task.abort();
        }
    }

    /// If there are [`MAX_SLOW_CLIENTS`], drops the oldest client of a slow page.
    fn make_room_for_slow(&self) {
        let mut clients = lock(&self.clients);
        clients.retain(|client| !client.task.is_finished());
        let slow = clients
            .iter()
            .filter(|client| client.is(ClientState::Slow))
            .count();
        if slow >= MAX_SLOW_CLIENTS
            && let Some(oldest) = clients
                .iter()
                .position(|client| client.is(ClientState::Slow))
        {
            clients.remove(oldest).task.abort();
        }
    }

    async fn answer(
        &self,
        request: &Request<Incoming>,
        state: &Mutex<ClientState>,
    ) -> Response<String> {
        *lock(state) = ClientState::Active;
        let found = self.find(request, state).await;
        let (status, content_type, text) = match found {
            Ok((content_type, text)) => (StatusCode::OK, content_type, text),
            Err((status, why)) => (status, "text/plain", format!("{why}\n")),
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type.parse().expect("a literal"));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, "GET, HEAD".parse().expect("a literal"));
        }
        response
    }

    /// Returns the content type and text of the requested page, or an error status and the reason.
    async fn find(
        &self,
        request: &Request<Incoming>,
        state: &Mutex<ClientState>,
    ) -> Result<(&'static str, String), (StatusCode, &'static str)> {
        let page = (self.page)(request.uri().path());
        let page = page.ok_or((StatusCode::NOT_FOUND, "not found"))?;
        self.check_host(request, page.is_private)?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only"));
        }
        let text = match page.text {
            Text::Ready(text) => Ok(text),
            Text::Slow(make) => {
                self.make_room_for_slow();
                *lock(state) = ClientState::Slow;
                let made = timeout(SLOW_PAGE_LIMIT, async {
                    let permit = Arc::clone(&self.slow).acquire_owned().await.ok()?;
                    // The permit is held until the page is ready, even if its client has gone.
                    let make = move || (make(), permit).0;
                    spawn_blocking(make).await.ok()
                });
                let made = made.await.ok().flatten();
                made.unwrap_or(Err("the page took too long"))
            }
        };
        let text = text.map_err(|why| (StatusCode::SERVICE_UNAVAILABLE, why))?;
        Ok((page.content_type, text))
    }

    /// Requires exactly one `Host` header. For a private page it must be an IP address, `localhost`
    /// or this server's host. Otherwise any web page could point its own name here and read the
    /// page in a visitor's browser (DNS rebinding).
    fn check_host(
        &self,
        request: &Request<Incoming>,
        is_private: bool,
    ) -> Result<(), (StatusCode, &'static str)> {
        let bad = |why| (StatusCode::BAD_REQUEST, why);
        let mut hosts = request.headers().get_all(HOST).iter();
        let authority = match (hosts.next(), hosts.next()) {
            (None, _) if request.version() < Version::HTTP_11 => return Ok(()),
            (Some(host), None) => Authority::try_from(host.as_bytes()),
            _ => return Err(bad("HTTP/1.1 requires exactly one Host header")),
        };
        let authority = authority.map_err(|_| bad("invalid Host header"))?;
        // The host in an absolute request target takes precedence.
        let host = request.uri().host().unwrap_or(authority.host());
        let bare = |host: &'_ str| -> String {
            let inside = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            inside.unwrap_or(host).to_ascii_lowercase()
        };
        let host = bare(host);
        let is_ours =
            host == "localhost" || host == bare(&self.host) || host.parse::<IpAddr>().is_ok();
        match is_ours || !is_private {
            true => Ok(()),
            false => Err((
                StatusCode::MISDIRECTED_REQUEST,
                "unknown Host: use the server's IP address, or start it with this host name",
            )),
        }
    }
}

/// The header lines of a metric.
pub(crate) fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// A metric with a single value.
pub(crate) fn metric(name: &str, kind: &str, help: &str, value: impl Display) -> String {
    format!("{}{name} {value}\n", head(name, kind, help))
}

/// Escapes text for a label's value.
pub(crate) fn label(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    pub(crate) fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn serve_at(host: &str, page: impl Fn(&str) -> Option<Text> + Send + Sync + 'static) -> Server {
        let page = move |path: &str| {
            let content_type = "text/plain";
            page(path).map(|text| Page {
                content_type,
                text,
                is_private: true,
            })
        };
        Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), host, page).unwrap()
    }

    fn here(path: &str) -> Option<Text> {
        (path == "/here").then(|| Text::Ready("it is here".to_owned()))
    }

    fn serve() -> Server {
        serve_at("127.0.0.1", here)
    }

    #[track_caller]
    fn assert_here(address: SocketAddr) {
        let answer = ask(address, "GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.ends_with("\r\n\r\nit is here"), "{answer}");
    }

    #[test]
    fn requests_and_answers() {
        let address = serve().address();
        let ask = |request: &str| ask(address, request).to_ascii_lowercase();
        for request in [
            "GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /here?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET http://localhost/here?x=1 HTTP/1.1\r\nHost: other\r\n\r\n",
            "GET /here HTTP/1.1\nHost: localhost\n\n",
            "\r\nGET /here HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /here HTTP/1.0\r\n\r\n",
        ] {
            let answer = ask(request);
            assert!(answer.contains(" 200 ok\r\n"), "{request}: {answer}");
            assert!(answer.contains("content-length: 10\r\n"), "{answer}");
            assert!(answer.contains("content-type: text/plain\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\nit is here"), "{answer}");
        }
        let answer = ask("HEAD /here HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(answer.contains("content-length: 10\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        let answer = ask("POST /here HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na");
        assert!(answer.starts_with("http/1.1 405 "), "{answer}");
        assert!(answer.contains("allow: get, head\r\n"), "{answer}");
        let long = "a".repeat(2 * MAX_REQUEST);
        for (request, expected) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
            ("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400"),
            ("GET /here HTTP/1.1\r\nno colon\r\n\r\n", "400"),
            ("GET /here HTTP/1.1\r\n\r\n", "400"),
            ("GET /here HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
            ("GET /here HTTP/1.1\r\nHost: a b\r\n\r\n", "400"),
            (&format!("GET /{long} HTTP/1.1\r\n"), "431"),
            (&format!("GET / HTTP/1.1\r\nx: {long}\r\n"), "431"),
        ] {
            let answer = ask(request);
            let status = answer.split(' ').nth(1);
            assert_eq!(status, Some(expected), "{request:.40}: {answer}");
        }
    }

    /// A web page cannot read private pages under a name of its own.
    #[test]
    fn other_hosts_are_refused() {
        let address = serve_at("Gateway.example", here).address();
        for (host, expected) in [
            ("localhost", "200"),
            ("LOCALHOST:9334", "200"),
            ("127.0.0.1:9334", "200"),
            ("192.0.2.1", "200"),
            ("[::1]:9334", "200"),
            ("gateway.example:9334", "200"),
            ("rebound.example:9334", "421"),
            ("localhost.rebound.example", "421"),
            ("127.0.0.1.rebound.example", "421"),
            ("127.0.0.1@rebound.example", "421"),
        ] {
            for request in [
                format!("GET /here HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                format!("GET http://{host}/here HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ] {
                let answer = ask(address, &request);
                let status = answer.split(' ').nth(1);
                assert_eq!(status, Some(expected), "{request}: {answer}");
            }
        }
    }

    #[cfg(feature = "gateway")]
    #[test]
    fn a_closed_server_refuses_connections() {
        let server = serve();
        assert_here(server.address());
        server.close();
        let refused = TcpStream::connect(server.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// Clients that send nothing, half a request, or do not read a long answer: as many as there
    /// are slots, and more.
    #[test]
    fn idle_and_slow_clients_keep_nobody_out() {
        // More than the socket buffers hold.
        const LONG: usize = 20_000_000;
        let address = serve_at("127.0.0.1", |path| match path {
            "/long" => Some(Text::Slow(Box::new(|| Ok("a".repeat(LONG))))),
            path => here(path),
        })
        .address();
        let mut others = Vec::new();
        for (says, count) in [
            ("", MAX_CLIENTS + 10),
            ("GET /here HT", MAX_CLIENTS + 10),
            ("GET /long HTTP/1.0\r\n\r\n", MAX_SLOW_CLIENTS + 4),
        ] {
            for _ in 0..count {
                let mut other = TcpStream::connect(address).unwrap();
                other.write_all(says.as_bytes()).unwrap();
                others.push(other);
            }
            let begun = Instant::now();
            assert_here(address);
            assert!(begun.elapsed() < CLIENT_LIMIT / 2, "{says}");
        }
        // There is a slot for another client that reads, and it survives idle clients.
        let mut served = TcpStream::connect(address).unwrap();
        served.write_all(b"GET /long HTTP/1.0\r\n\r\n").unwrap();
        served.read_exact(&mut [0; 100]).unwrap();
        others.extend((0..2 * MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()));
        assert_here(address);
        let rest = served.read_to_end(&mut Vec::new()).unwrap();
        assert!(rest > LONG - 100, "{rest}");
    }

    /// A client that never finishes is dropped after the limit.
    #[test]
    fn a_silent_client_is_dropped() {
        let address = serve().address();
        let mut silent = TcpStream::connect(address).unwrap();
        silent.set_read_timeout(Some(2 * CLIENT_LIMIT)).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    }

    /// Clients of the slow page get an error, and all other pages are served meanwhile.
    #[test]
    fn a_page_that_never_finishes() {
        let (made, waits) = channel::<()>();
        let waits = Arc::new(std::sync::Mutex::new(waits));
        let address = serve_at("127.0.0.1", move |path| match path {
            "/slow" => {
                let waits = Arc::clone(&waits);
                Some(Text::Slow(Box::new(move || {
                    let _ = waits.lock().map(|waits| waits.recv());
                    Ok("at last".to_owned())
                })))
            }
            path => here(path),
        })
        .address();
        let begun = Instant::now();
        let mut slow: Vec<_> = (0..MAX_SLOW_CLIENTS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        for stream in &mut slow {
            stream.write_all(b"GET /slow HTTP/1.0\r\n\r\n").unwrap();
        }
        assert_here(address);
        assert!(begun.elapsed() < SLOW_PAGE_LIMIT);
        for stream in &mut slow {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.0 503 "), "{answer}");
        }
        assert!(begun.elapsed() < 2 * SLOW_PAGE_LIMIT);
        // Abandoned pages finish and release their permits.
        (0..MAX_SLOW_PAGES).for_each(|_| made.send(()).unwrap());
        made.send(()).unwrap();
        let answer = ask(address, "GET /slow HTTP/1.0\r\n\r\n");
        assert!(answer.ends_with("at last"), "{answer}");
    }
}
