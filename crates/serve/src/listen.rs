//! The server's sockets, from startup to shutdown.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use std::time::Duration;

use axum::{Extension, Router};
use axum_server::accept::{Accept, DefaultAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use iotax_model::threads;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tower::Layer as _;

use crate::app::{App, Shared};
use crate::config::{Config, Tls};
use crate::connections::{Connection, Connections};
use crate::guard::HasCertificate;
use crate::routes;

/// Maximum time for a client to send the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// Maximum time for unfinished responses after the server was asked to stop.
const FAREWELL: Duration = Duration::from_secs(3);

/// The reason why the server cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is reachable from other machines, but neither a token nor client certificates are configured.
    #[error(
        "{0} can be reached from other machines, so a token (--token-file FILE or the variable IOTAX_TOKEN) or clients' certificates \
         (--client-ca FILE) are needed; without either listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address that was to be used.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// A certificate or key file cannot be used.
    #[error("{}: {reason}; accepted: {accepted} as PEM", path.display())]
    Certificate {
        /// Path of the file.
        path: PathBuf,
        /// Content that the file should have, such as `a key`.
        accepted: &'static str,
        /// The reason why the file cannot be used.
        reason: String,
    },
    /// Another error of the operating system.
    #[error("the server cannot go on: {0}")]
    System(#[from] io::Error),
}

/// Serves until SIGINT, SIGTERM or SIGHUP. Calls `listening` with the actual address once the socket is open.
///
/// # Errors
/// The address or a certificate cannot be used, other machines could read the store without a token or certificate, or
/// another system call fails.
pub fn serve(config: Config, listening: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let has_clients = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if !config.listen.ip().is_loopback() && config.token.is_none() && !has_clients {
        return Err(ServeError::Open(config.listen));
    }
    let tls = config.tls.as_ref().map(certificates).transpose()?;
    let address = config.listen;
    let socket = TcpListener::bind(address).map_err(|source| ServeError::Listen { address, source })?;
    listening(socket.local_addr()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let app = App::new(config)?;
    runtime.block_on(until_stopped(&app, socket, tls))?;
    if let Some(launcher) = &app.launcher {
        launcher.stop();
    }
    // Waits at most this long for threads that still read the store.
    runtime.shutdown_timeout(FAREWELL);
    Ok(())
}

async fn until_stopped(app: &Shared, socket: TcpListener, tls: Option<ServerConfig>) -> io::Result<()> {
    let handle = Handle::new();
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // SIGHUP arrives when the terminal is closed or the ssh connection ends.
    let mut hangup = signal(SignalKind::hangup())?;
    let (stop, followers) = (handle.clone(), Arc::clone(&app.followers));
    tokio::spawn(async move {
        tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hangup.recv() => {} }
        // Clients that follow a run would stay connected for hours.
        followers.close();
        stop.graceful_shutdown(Some(FAREWELL));
    });
    let has_client_ca = app.config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let service = routes::service(app).into_make_service_with_connect_info::<SocketAddr>();
    let server = patient(socket)?.handle(handle);
    let limit = Limit { open: Arc::default(), has_certificate: has_client_ca };
    match tls {
        None => server.acceptor(limit).serve(service).await,
        Some(config) => {
            let config = RustlsConfig::from_config(Arc::new(config));
            server.acceptor(RustlsAcceptor::new(config).acceptor(limit)).serve(service).await
        }
    }
}

/// Creates a server on a socket, with limits on slow and on demanding clients.
fn patient(socket: TcpListener) -> io::Result<Server<SocketAddr>> {
    let mut server = axum_server::from_tcp(socket)?.first_request_timeout(HEADERS);
    server.http_builder().http1().header_read_timeout(HEADERS);
    server.http_builder().http2().max_concurrent_streams(32).max_header_list_size(32 << 10);
    Ok(server)
}

/// Serves a router over plain HTTP on a separate thread until the process ends. Returns the address that it listens on.
pub(crate) fn in_a_thread(address: SocketAddr, router: Router) -> io::Result<SocketAddr> {
    let socket = TcpListener::bind(address)?;
    let address = socket.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    threads::spawn("metrics", move || {
        runtime.block_on(async {
            let limit = Limit { open: Arc::default(), has_certificate: false };
            patient(socket)?.acceptor(limit).serve(router.into_make_service()).await
        })
    })?;
    Ok(address)
}

/// Limit on the number of open connections. A connection for which there is no room is closed immediately.
#[derive(Debug, Clone)]
struct Limit {
    open: Arc<Connections>,
    /// True if the TLS layer requires a client certificate, so that every request has one.
    has_certificate: bool,
}

/// A service of one connection that holds its place among the open connections until it is dropped.
type WithConnection<S> = <Extension<Arc<Connection>> as tower::Layer<S>>::Service;
type Certified<S> = <Extension<Option<HasCertificate>> as tower::Layer<S>>::Service;

impl<S: Send + 'static> Accept<TcpStream, S> for Limit
where
    Certified<WithConnection<S>>: Send,
{
    type Stream = TcpStream;
    type Service = Certified<WithConnection<S>>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(TcpStream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let open = stream.peer_addr().and_then(|peer| self.open.open(peer.ip(), &stream));
        let certificate = self.has_certificate.then_some(HasCertificate);
        Box::pin(async move {
            let connection = open?.ok_or_else(|| io::Error::other("too many connections"))?;
            let (stream, service) = DefaultAcceptor::new().accept(stream, service).await?;
            let service = Extension(Arc::new(connection)).layer(service);
            Ok((stream, Extension(certificate).layer(service)))
        })
    }
}

fn certificates(tls: &Tls) -> Result<ServerConfig, ServeError> {
    let unfit = |path: &Path, accepted, reason: &dyn std::fmt::Display| ServeError::Certificate {
        path: path.to_owned(),
        accepted,
        reason: reason.to_string(),
    };
    let chain = chain(&tls.cert).map_err(|reason| unfit(&tls.cert, "a certificate", &reason))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| unfit(&tls.key, "a key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config.map_err(|error| unfit(&tls.cert, "a certificate", &error))?;
    let config = match &tls.client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let unfit = |reason: &dyn std::fmt::Display| unfit(path, "an authority's certificate", reason);
            let mut roots = RootCertStore::empty();
            for certificate in self::chain(path).map_err(|reason| unfit(&reason))? {
                roots.add(certificate).map_err(|error| unfit(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.map_err(|error| unfit(&error))?)
        }
    };
    let mut config = config
        .with_single_cert(chain, key)
        .map_err(|error| unfit(&tls.cert, "the key's certificate", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err("it has no certificate".into()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(error.to_string()),
    }
}
